"""`kernelwright`: one command for each thing that people do with it."""

from __future__ import annotations

import typer

from cli import (
    benching,
    checking,
    exporting,
    libraries,
    machines,
    optimizing,
    redteaming,
    scoring,
    services,
    tuning,
)

app = typer.Typer(
    name="kernelwright",
    help="Turns a PyTorch reference op into a Triton kernel whose verdict can be believed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command("doctor")(machines.doctor)
app.command("calibrate")(machines.calibrate)
app.command("check")(checking.check)
app.command("bench")(benching.bench)
app.command("optimize")(optimizing.optimize)
app.command("tune")(tuning.tune)
app.command("scoreboard")(scoring.scoreboard)
app.command("redteam")(redteaming.redteam)
app.command("serve")(services.serve)
app.command("worker")(services.worker)
app.command("submit")(services.submit)
app.command("export")(exporting.export)
app.add_typer(libraries.app, name="library")


def main() -> None:
    """Run the command line."""
    app(prog_name="kernelwright")


if __name__ == "__main__":
    main()
