"""The library: the newest version of each kernel."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import TheStore
from api.resources import KernelResource, KernelSummary, Page

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])


@router.get("")
def index(store: TheStore) -> Page[KernelSummary]:
    """Every kernel, by name."""
    kernels = sorted(store.kernels(), key=lambda kernel: kernel.name)
    return Page(items=[KernelSummary.of(kernel) for kernel in kernels])


@router.get("/{name}")
def show(
    name: str, store: TheStore, version: Annotated[int | None, Query(ge=1)] = None
) -> KernelResource:
    """One kernel, at a version or the newest."""
    return KernelResource.of(store.kernel(name, version))
