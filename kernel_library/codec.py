"""Values to JSON and back: for the database, the queue, the sandbox and the API alike."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, TypeAdapter

from kernel_library.candidate import Candidate
from kernel_library.device import Device
from kernel_library.graph import Graph
from kernel_library.job import Attempt
from kernel_library.space import Tuned
from kernel_library.spec import OpSpec
from kernel_library.verdict import Verdict

op_json = TypeAdapter(OpSpec)
graph_json = TypeAdapter(Graph)
tuned_json = TypeAdapter(tuple[Tuned, ...])
candidate_json = TypeAdapter(Candidate)
device_json = TypeAdapter(Device)
attempt_json = TypeAdapter(Attempt)
verdict_json: TypeAdapter[Verdict] = TypeAdapter(Annotated[Verdict, Field(discriminator="kind")])
