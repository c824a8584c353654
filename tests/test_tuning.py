"""Tuning finds the best setting of each size, by looks that the tests make up."""

import json
import threading
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from cli.main import app
from evaluator.isolate import Done
from evaluator.play.wire import Reply, dump_reply, load_request
from kernel_library.device import Ceilings, Device, Target
from kernel_library.space import Space
from kernel_library.spec import OpSpec, Tensor, grid
from kernel_library.unit import Unit, space_names, tuned_table
from kernel_library.verdict import Measurement
from seeds import softmax
from worker.judging import QUICK
from worker.tuning import AT_LENGTH, at_some, by_judge, table, tuned

CEILINGS = Ceilings(4000.0, {}, 60.0, 1.0)
DEVICE = Device("NVIDIA H200", Target(), 132, 60 << 20, CEILINGS, CEILINGS)
SPACE = Space({"BLOCK": (128, 256, 512, 1024, 2048, 4096)}, constraints=("BLOCK <= N",))
OP = OpSpec(
    "softmax",
    {"x": Tensor("M N")},
    {"y": Tensor("M N")},
    grid("M N", {"check": [(3, 5)], "measure": [(8, 4096), (8, 512)]}, ("bfloat16",)),
)
UNIT = Unit(OP, softmax.reference, softmax.softmax, SPACE)


def looking(time_us, seen=None):
    def looks(at, configs, pace):
        found = [time_us(at, config["BLOCK"], pace) for config in configs]
        if seen is not None:
            seen.extend((at.dims["N"], config["BLOCK"], pace) for config in configs)
        return [
            us if isinstance(us, str) else Measurement(at, us, us, us, 1, "memory") for us in found
        ]

    return looks


def test_each_size_gets_the_setting_that_is_best_there():
    rows = list(tuned(UNIT, looking(lambda at, block, pace: abs(at.dims["N"] / 4 - block) + 1), 2))
    assert [(row.at.dims["N"], row.config["BLOCK"]) for row in rows] == [(4096, 1024), (512, 128)]
    assert rows[0].best.time_us == 1 and rows[0].default.time_us == 1024 - 128 + 1
    assert [row.tried for row in rows] == [6, 3]


def test_a_short_look_does_not_decide():
    def time_us(at, block, pace):
        lucky = pace == QUICK and block == 256
        return 9.0 if lucky else 10.0 + block / 1e4

    seen = []
    first = next(tuned(UNIT, looking(time_us, seen), 1))
    assert first.config["BLOCK"] == 128
    at_length = [block for n, block, pace in seen if n == 4096 and pace == AT_LENGTH]
    assert at_length == [256, 128, 512, 1024]


def test_the_sizes_are_looked_at_side_by_side():
    both = threading.Barrier(2, timeout=20)

    def time_us(at, block, pace):
        if block == 128:
            both.wait()
        return float(block)

    rows = list(tuned(UNIT, looking(time_us), 2))
    assert [row.best.time_us for row in rows] == [128, 128]


def test_what_cannot_be_used_is_counted_by_its_reason():
    def time_us(at, block, pace):
        return "resources: too much shared memory" if block < 1024 else float(block)

    first = next(tuned(UNIT, looking(time_us), 2))
    assert first.config["BLOCK"] == 1024 and first.default is None
    assert first.refused == {"resources: too much shared memory": 3}


def test_where_nothing_runs_there_is_no_row_in_the_table():
    rows = list(
        tuned(
            UNIT, looking(lambda at, block, pace: "smoke: hangs" if at.dims["N"] > 512 else 2.0), 2
        )
    )
    assert [row.best is None for row in rows] == [True, False]
    told = table(DEVICE, rows, {"command": "kernelwright tune"})
    assert [row["dims"]["N"] for row in told["NVIDIA H200"]["rows"]] == [512]


def test_a_table_is_read_as_it_was_written(tmp_path, monkeypatch):
    rows = list(tuned(UNIT, looking(lambda at, block, pace: 1.0 + block), 1))
    (tmp_path / "tuned").mkdir()
    written = tmp_path / "tuned" / "softmax.json"
    written.write_text(json.dumps(table(DEVICE, rows, {"command": "kernelwright tune"})))
    monkeypatch.setattr("inspect.getfile", lambda module: str(tmp_path / "softmax.py"))
    read = tuned_table(UNIT, "NVIDIA H200")
    assert [(row.dims["N"], row.config) for row in read] == [
        (4096, {"BLOCK": 128}),
        (512, {"BLOCK": 128}),
    ]
    assert replace(read[0], config=rows[0].config) == read[0]


def test_rows_of_other_sizes_stay_if_they_are_of_the_same_versions():
    def found(unit, us):
        return list(tuned(unit, looking(lambda at, block, pace: us + block), 1))

    made = {"date": "2026-11-29", "torch": "2.11.0"}
    whole = json.loads(json.dumps(table(DEVICE, found(UNIT, 1.0), made)))["NVIDIA H200"]
    some = found(at_some(UNIT, "N512"), 0.0)
    assert [row.at.dims["N"] for row in some] == [512]

    def sizes(known, provenance):
        told = table(DEVICE, some, provenance, known)["NVIDIA H200"]
        assert told["provenance"] == provenance
        return [row["dims"]["N"] for row in told["rows"]]

    assert sizes(whole, made | {"date": "2026-11-30"}) == [4096, 512]
    assert sizes(whole, made | {"torch": "2.12.0"}) == sizes(None, made) == [512]


def test_a_seed_that_is_not_there_is_the_askers_fault():
    ended = CliRunner().invoke(app, ["tune", "soft"])
    assert ended.exit_code == 2 and "no seed 'soft'" in " ".join(ended.output.split())


def test_some_sizes_are_tuned_beside_the_rest_of_a_table(tmp_path, monkeypatch):
    def by_judge(unit, judge, device):
        return looking(lambda at, block, pace: float(block))

    monkeypatch.setattr("worker.tuning.by_judge", by_judge)
    monkeypatch.setattr(
        "worker.judging.open_judge", lambda _: nullcontext(SimpleNamespace(device=DEVICE))
    )
    written = tmp_path / "adamw.json"
    for only in ("", "n1+"):
        ended = CliRunner().invoke(app, ["tune", "adamw", "--out", str(tmp_path), "--only", only])
        assert ended.exit_code == 0, ended.output
        assert len(json.loads(written.read_text())["NVIDIA H200"]["rows"]) == 3
    assert "n1+5001" in ended.output and "n4096" not in ended.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_there_is_nothing_to_tune_for(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    ended = CliRunner().invoke(app, ["tune", "softmax"])
    assert ended.exit_code == 2 and "no CUDA GPU is visible" in " ".join(ended.output.split())


MEASURED = next(at for at in softmax.UNIT.op.workloads if at.role == "measure")
CONFIGS = list(softmax.UNIT.space.configs(space_names(softmax.UNIT.op, MEASURED)))


def player_that(answers, asked):
    """A player that answers by what it is asked to play."""

    def player(job, request, seconds):
        asked.append(load_request(request))
        return Done(dump_reply(answers(asked[-1])))

    return player


def took(request, us=34.0):
    return Measurement(request.sent[0].at, us, us, us, 31.0, "memory")


def test_settings_are_recorded_and_raced_at_one_size_in_one_process(judge):
    asked = []
    player = player_that(lambda asks: Reply(measured=(took(asks),) * len(asks.sent)), asked)
    looks = by_judge(
        softmax.UNIT, replace(judge, rooms=replace(judge.rooms, player=player)), DEVICE
    )
    found = looks(MEASURED, [CONFIGS[0], {**CONFIGS[0], "num_warps": 3}, CONFIGS[1]], QUICK)
    assert [each if isinstance(each, str) else each.time_us for each in (found[0], found[2])] == [
        34.0,
        34.0,
    ]
    assert isinstance(found[1], str) and found[1].startswith("record: ")
    (one,) = asked
    assert (one.race.timed, len(one.sent), one.race.pace) == (2, 2, QUICK)
    assert one.sent[0].tape != one.sent[1].tape
    looks(MEASURED, CONFIGS[:1], AT_LENGTH)
    assert (len(asked[1].sent), asked[1].race.pace) == (1, AT_LENGTH)


def test_a_setting_that_fails_costs_no_other(judge):
    def answers(request):
        if request.sent[0].tape == asked[0].sent[0].tape:
            return Reply(whose="candidate", stage="smoke", reason="does not finish", take=0)
        return Reply(measured=(took(request),))

    asked = []
    rooms = replace(judge.rooms, player=player_that(answers, asked))
    found = by_judge(softmax.UNIT, replace(judge, rooms=rooms), DEVICE)(
        MEASURED, CONFIGS[:2], QUICK
    )
    assert found[0].startswith("smoke: does not finish") and found[1].time_us == 34.0
    assert [len(one.sent) for one in asked] == [2, 1, 1]
