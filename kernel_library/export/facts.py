"""What a package says of its kernels: the tables that it runs by, and its certificate."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from kernel_library.candidate import Candidate
from kernel_library.codec import op_json, tuned_json, verdict_json
from kernel_library.export.exported import Exported
from kernel_library.export.signature import schema
from kernel_library.verdict import Passed


def table(kernel: Exported) -> str:
    """`tables/<op>.json`: the contract, the kernel's settings, and where it was proven."""
    passed = kernel.verdict if isinstance(kernel.verdict, Passed) else None
    judged = [c.at for c in passed.checked] if passed else []
    dtypes = {json.dumps(dict(at.dtypes), sort_keys=True) for at in judged or kernel.op.workloads}
    device = passed.record.device if passed else None
    rows = tuned_json.dump_python(kernel.candidate.tuned, mode="json")
    facts = {
        "contract": _contract(kernel),
        "schema": schema(kernel.op),
        "entry": kernel.candidate.entry,
        "config": dict(kernel.candidate.config),
        "pick": kernel.candidate.pick if "autotune" in kernel.candidate.source else None,
        "rows": {device or "a device that the verdict does not name": rows} if rows else {},
        "archs": sorted(passed.record.compiled_for) if passed else [],
        "dtypes": [json.loads(text) for text in sorted(dtypes)],
        # inputs with gaps and turned axes go to the reference unless they were judged
        "strided": passed is not None and "transposed" in passed.record.layouts,
        "backward": kernel.backward.name if kernel.backward else None,
    }
    return _json(facts)


def certificate(
    kernels: Mapping[str, Exported], package: str, release: str, files: Mapping[str, bytes]
) -> str:
    """`certificate.json`: what was judged, how, by whom accepted, and each file's hash."""
    facts = {
        "package": package,
        "version": release,
        "kernelwright": kernelwright_version(),
        "ops": {name: _certified(kernel) for name, kernel in kernels.items()},
        "files": {path: sha256(text).hexdigest() for path, text in sorted(files.items())},
    }
    return _json(facts)


def summary(kernel: Exported) -> str:
    """What the verdict is worth, in one sentence."""
    if not isinstance(kernel.verdict, Passed):
        return "Never judged: only the reference runs."
    record, points = kernel.verdict.record, len(kernel.verdict.checked)
    if record.evidence == "interpreted":
        targets = ", ".join(record.compiled_for) or "no GPU"
        return (
            f"Right at {points} workloads under Triton's interpreter on a CPU and compiled for "
            f"{targets}; it was not run on a GPU and nothing was timed."
        )
    timed = len(kernel.verdict.measured)
    speed = (
        f"timed at {timed}: {kernel.verdict.of_roofline:.0%} of that device's roofline"
        if timed
        else "nothing was timed"
    )
    return f"Replayed on {record.device}: right at {points} workloads, {speed}."


def kernelwright_version() -> str:
    """The release that exports, or that it runs from a source tree."""
    try:
        return version("kernelwright")
    except PackageNotFoundError:
        return "unreleased source tree"


def _certified(kernel: Exported) -> dict[str, Any]:
    passed = kernel.verdict if isinstance(kernel.verdict, Passed) else None
    candidate, review = kernel.candidate, kernel.review
    return {
        "summary": summary(kernel),
        "evidence": passed.record.evidence if passed else None,
        "device": passed.record.device if passed else None,
        "compiled_for": list(passed.record.compiled_for) if passed else [],
        "versions": dict(passed.record.versions) if passed else {},
        "contract": kernel.op.digest,
        "candidate": candidate.digest,
        "sources": {
            f"kernels/{kernel.name}.py": _hash(candidate.source),
            f"reference/{kernel.name}.py": _hash(kernel.op.reference.source),
        },
        "origin": _origin(candidate) | {"job": kernel.job},
        "review": {"reviewer": review.reviewer, "time": review.time, "note": review.note}
        if review
        else None,
        "backward": kernel.backward.name if kernel.backward else None,
        "verdict": verdict_json.dump_python(passed, mode="json") if passed else None,
    }


def _origin(candidate: Candidate) -> dict[str, str | None]:
    return {"proposer": candidate.proposer, "why": candidate.why, "parent": candidate.parent}


def _contract(kernel: Exported) -> dict[str, Any]:
    """The contract without its reference, whose source is a file of its own."""
    contract: dict[str, Any] = op_json.dump_python(kernel.op, mode="json", exclude={"reference"})
    return contract | {"entry": kernel.op.reference.entry}


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
