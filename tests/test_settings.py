import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from kernel_library.job import Budget
from worker.settings import Settings

TABLE = (Path(__file__).parent.parent / "docs" / "settings.md").read_text()
ROW = re.compile(r"^\| `KERNELWRIGHT_(\w+)` \| (.+?) \| .+ \|$", re.MULTILINE)


def test_every_setting_is_in_the_table_and_nothing_else():
    assert [name.lower() for name, _ in ROW.findall(TABLE)] == [*Settings.model_fields]


def test_the_table_tells_the_defaults():
    told = {name.lower(): text.strip("`") for name, text in ROW.findall(TABLE)}
    for name, value in Settings().model_dump().items():
        if isinstance(value, int | float):
            assert float(told[name]) == value, name


def test_settings_come_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    monkeypatch.setenv("KERNELWRIGHT_PORT", "9000")
    settings = Settings()
    assert (settings.home, settings.port) == (tmp_path, 9000)
    assert settings.device_path == tmp_path / "device.json"


def test_candidates_are_judged_side_by_side_on_half_of_the_cores(monkeypatch):
    for cores, wanted in ((1, 1), (6, 3), (64, 8)):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cores=cores: range(cores))
        assert Settings().side_by_side == wanted
    monkeypatch.setenv("KERNELWRIGHT_TOGETHER", "3")
    assert Settings().side_by_side == 3


def test_home_is_where_xdg_says(monkeypatch, tmp_path):
    monkeypatch.delenv("KERNELWRIGHT_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().home == tmp_path / "kernelwright"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert Settings().home == Path.home() / ".local" / "share" / "kernelwright"


def test_the_store_is_in_the_home_folder(tmp_path):
    store = Settings(home=tmp_path / "new").store()
    store.migrate()
    assert store.is_current()
    assert (tmp_path / "new" / "kernelwright.db").exists()
    assert store.files == tmp_path / "new" / "artifacts"
    store.close()


def test_a_relative_home_works(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    store = Settings(home=Path("here")).store()
    store.migrate()
    assert (tmp_path / "here" / "kernelwright.db").exists()
    store.close()


def test_a_secret_may_stand_in_a_file(tmp_path):
    file = tmp_path / "key"
    file.write_text("canary\n")
    settings = Settings(llm_key_file=file)
    assert settings.key is not None
    assert settings.key.get_secret_value() == "canary"
    assert Settings().key is None


def test_no_secret_is_ever_printed():
    settings = Settings(llm_key="canary", database_url="postgresql://u:canary@h/d")
    assert "canary" not in f"{settings!r} {settings.model_dump()} {settings.model_dump_json()}"


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"host": "0.0.0.0"}, "loopback"),
        ({"host": "example"}, "host"),
        ({"port": 70000}, "port"),
        ({"budget_seconds": 100.0, "max_seconds": 50.0}, "budget_seconds is above max_seconds"),
        ({"llm_key": "a", "llm_key_file": "b"}, "not both"),
        ({"llm_price_in": -1.0}, "llm_price_in"),
        ({"source_bytes": 0}, "source_bytes"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_wrong_setting_is_refused_by_name(wrong, why):
    with pytest.raises(ValidationError, match=why):
        Settings(**wrong)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_loopback_may_be_served(host):
    assert Settings(host=host).host == host


def test_budgets_are_said_once():
    settings = Settings(max_tokens=300_000)
    assert settings.default_budget == Budget()
    assert settings.largest_budget.tokens == 300_000
