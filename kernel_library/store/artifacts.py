"""Files that jobs made: on disk under their SHA-256, so that a name can say nothing false."""

from __future__ import annotations

import os
import re
import tempfile
from hashlib import sha256
from pathlib import Path

from kernel_library.store.errors import NotFound
from kernel_library.store.part import Part
from kernel_library.store.tables import Artifact

FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")


class Artifacts(Part):
    """Files by content."""

    def put_artifact(self, body: bytes, filename: str) -> str:
        """Keep a file and give its SHA-256; the same content is kept once, under its first name.

        Raises ValueError for a file name with a folder, a space or an odd character in it.
        """
        if not FILENAME.fullmatch(filename):
            raise ValueError(f"{filename!r} is no plain file name")
        sha = sha256(body).hexdigest()
        write_whole(self.path_of(sha), body)
        with self.database.write() as session:
            self.database.lock(session, Artifact)
            if session.get(Artifact, sha) is None:
                at = self.database.now()
                session.add(Artifact(sha256=sha, filename=filename, size=len(body), at=at))
        return sha

    def artifact(self, sha: str) -> tuple[Path, str]:
        """Where a file is, and its name. Raises NotFound."""
        with self.database.read() as session:
            found = session.get(Artifact, sha)
        if found is None:
            raise NotFound(f"there is no artifact {sha!r}")
        path = self.path_of(sha)
        if not path.is_file():
            raise NotFound(f"{found.filename} is gone from the artifacts folder: export it again")
        return path, found.filename

    def path_of(self, sha: str) -> Path:
        """Two levels, so that no folder grows without bound."""
        return self.files / sha[:2] / sha


def write_whole(path: Path, body: bytes) -> None:
    """Write a file so that it is there whole or not at all, even if the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)
