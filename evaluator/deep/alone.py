"""What runs under the sanitizer: plays each take of a request once, and looks at nothing.

Inputs are drawn on the host and copied in, which a sanitizer follows as no kernel's work.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from evaluator.deep.exact import Exact
from evaluator.deep.running import PLAYED
from evaluator.inputs import draw
from evaluator.play.check import kernels
from evaluator.play.job import gpu
from evaluator.play.player import Player, finish
from evaluator.play.wire import Request, load_request
from evaluator.turns import Turns

#: A sanitizer makes device code some hundred times slower.
PATIENCE_S = 120.0


def play_each(request: Request, device: torch.device) -> None:
    """Play the takes, each on memory that it shares with nothing."""
    for take in request.takes():
        player = Player(request.op, take.recording, device, Exact)
        bound = player.bind(draw(request.op, take.at, take.case, "cpu"), take.case.poison)
        bound.play()
        finish(kernels(player), device, PATIENCE_S)


if __name__ == "__main__":
    asked = load_request(Path(sys.argv[1]).read_bytes())
    with Turns(Path(asked.turns)).shared():
        play_each(asked, gpu())
    sys.stdout.write(f"{PLAYED}\n")
