"""The whole way once: a PyTorch op goes in, a verified, installable kernel comes out.

Starts the embedded service on a free loopback port, submits `rms_norm.py` by REST, follows the job,
shows the verdict, accepts the winner by REST, exports it as a wheel, installs that wheel into a
scratch environment and has it verify itself. Everything is left as it was found.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from cli.exits import out
from cli.following import line, stream
from cli.render import show_verdict
from kernel_library.codec import verdict_json

PROBLEM = Path(__file__).parent / "rms_norm.py"
PACKAGE = "demo_kernels"
BUDGET = {"seconds": 240.0, "attempts": 12}


def main(look: Callable[[str, str], None] | None = None) -> int:
    """Run the demo; 0 if the exported wheel verified itself.

    `look(address, digest)` is called once the winner is accepted: a test opens the pages there.
    """
    with (
        TemporaryDirectory(prefix="kernelwright-demo-") as folder,
        service(Path(folder)) as address,
    ):
        step(f"the service runs at {address}")
        with httpx.Client(base_url=address, timeout=60) as client:
            job = follow(client, submit(client))
            if job["outcome"] != "winner":
                return told(f"no winner: {job['why']} {job['problem'] or ''}")
            show(client, job, address)
            kernel = accept(client, job["best"])
            if look:
                look(address, job["best"])
            wheel = export(client, kernel, Path(folder))
        return verify(wheel, Path(folder))


@contextmanager
def service(home: Path) -> Iterator[str]:
    """The embedded service with a home of its own, ended at the end."""
    environment = {**os.environ, "KERNELWRIGHT_HOME": str(home)}
    known = os.environ.get("KERNELWRIGHT_DEVICE_FILE")
    environment |= {"KERNELWRIGHT_DEVICE_FILE": known} if known else {}
    log = (home / "service.log").open("w+")
    command = [sys.executable, "-m", "cli.main", "serve", "--local", "--port", "0"]
    server = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
    try:
        yield wait_for_address(server, home / "service.log")
    finally:
        server.terminate()
        server.wait(60)
        log.close()


def wait_for_address(server: subprocess.Popen[bytes], log: Path, seconds: float = 120) -> str:
    """The address that the service says it serves on, once it answers there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.poll() is None:
        for text in log.read_text().splitlines():
            if text.startswith("serving on "):
                address = text.removeprefix("serving on ").strip()
                if answers(address):
                    return address
        time.sleep(0.1)
    raise RuntimeError(f"the service did not start: {log.read_text()[-2000:]}")


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}readyz", timeout=5).is_success
    except httpx.TransportError:
        return False


def submit(client: httpx.Client) -> str:
    """Submit the problem; the job's id."""
    step(f"submitting {PROBLEM.name}, a KernelBench-style file spelled unlike the library's own")
    body = {"filename": PROBLEM.name, "source": PROBLEM.read_text(), "budget": BUDGET}
    answer = client.post("/v1/jobs", json=body, headers={"idempotency-key": "demo"})
    answer.raise_for_status()
    job: str = answer.json()["id"]
    out.print(f"{client.base_url}jobs/{job}", highlight=False, soft_wrap=True)
    return job


def follow(client: httpx.Client, job: str) -> dict:
    """Print each event as it comes; the job as it ended."""
    with client.stream("GET", f"/v1/jobs/{job}/events", timeout=None) as events:
        for kind, data in stream(events.iter_lines()):
            if text := line(kind, data):
                out.print(text, highlight=False, soft_wrap=True)
    return client.get(f"/v1/jobs/{job}").json()


def show(client: httpx.Client, job: dict, address: str) -> None:
    """The winner's verdict as a table, and where its page is."""
    step("the verdict")
    found = client.get(f"/v1/candidates/{job['best']}").json()
    show_verdict(verdict_json.validate_python(found["verdict"]), job["name"])
    out.print(f"its page: {address}candidates/{job['best']}", highlight=False, soft_wrap=True)


def accept(client: httpx.Client, digest: str) -> str:
    """Accept the winner into the library, as a reviewer would; the kernel's name there."""
    step("accepting the winner by REST")
    version = client.get(f"/v1/candidates/{digest}").headers["etag"]
    review = {"decision": "accept", "note": "seen in the demo", "reviewer": "demo"}
    answer = client.post(
        f"/v1/candidates/{digest}/reviews", json=review, headers={"if-match": version}
    )
    answer.raise_for_status()
    kernels = client.get("/v1/kernels").json()["items"]
    return next(k["name"] for k in kernels if k["candidate_digest"] == digest)


def export(client: httpx.Client, kernel: str, folder: Path) -> Path:
    """Export the accepted kernel, and fetch the wheel."""
    step("exporting it as a wheel")
    asked = {"kernels": [kernel], "package": PACKAGE}
    answer = client.post("/v1/exports", json=asked)
    answer.raise_for_status()
    made = follow(client, answer.json()["id"])
    if made["status"] != "succeeded":
        raise RuntimeError(f"the export failed: {json.dumps(made['problem'])}")
    artifact = client.get(f"/v1/exports/{made['id']}/artifact")
    artifact.raise_for_status()
    name = artifact.headers["content-disposition"].split('filename="')[1].rstrip('"')
    wheel = folder / name
    wheel.write_bytes(artifact.content)
    return wheel


def verify(wheel: Path, folder: Path) -> int:
    """Install the wheel into an environment of its own, and have it verify itself there."""
    step(f"installing {wheel.name} into a scratch environment, and verifying it there")
    scratch = folder / "scratch"
    venv.create(scratch, symlinks=True)
    python = scratch / "bin" / "python"
    # torch is gigabytes: the scratch environment borrows this one's instead of downloading it again
    site = Path(sysconfig.get_path("purelib", vars={"base": str(scratch)}))
    borrowed = [path for path in sys.path if path.endswith("-packages")]
    (site / "borrowed.pth").write_text("\n".join(borrowed))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    return subprocess.run([python, "-m", PACKAGE, "verify"], cwd=folder).returncode


def step(text: str) -> None:
    out.rule(f"[bold]{text}", align="left")


def told(text: str) -> int:
    out.print(text, style="bold red")
    return 1


if __name__ == "__main__":
    sys.exit(main())
