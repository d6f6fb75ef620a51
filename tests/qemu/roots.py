"""Python and numpy for other CPUs, unpacked from Debian's packages: what the tests in this folder run under qemu-user.

    python tests/qemu/roots.py aarch64 riscv64

Each root is about 150 MB in `.qemu/<arch>` (`LAMINA_QEMU_ROOTS` names another folder). apt resolves and checks the
packages against Debian's keys, in a state of its own: nothing is installed and no privilege is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("LAMINA_QEMU_ROOTS", Path(__file__).parents[2] / ".qemu"))
SUITE, PYTHON = "trixie", "python3.13"
SOURCE = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {} main\n"
DEBIAN = {"aarch64": "arm64", "riscv64": "riscv64"}


def root(arch: str) -> Path | None:
    """The root for `arch`, if it was made."""
    path = FOLDER / arch
    return path if (path / "ready").exists() else None


def make(arch: str) -> None:
    """Download and unpack Python, numpy and what they need."""
    path, state = FOLDER / arch, FOLDER / f"{arch}.apt"
    for folder in (path, state / "lists/partial", state / "archives/partial"):
        folder.mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text(SOURCE.format(SUITE))
    (state / "status").write_text("")
    settings = {
        "APT::Architecture": DEBIAN[arch],
        "APT::Architectures": DEBIAN[arch],
        "APT::Sandbox::User": "",
        "Dir::Etc::SourceList": state / "sources.list",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
    }
    apt = ["apt-get", "-qq", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "-y", "--no-install-recommends", "--download-only", "python3-numpy"], check=True)
    for package in sorted((state / "archives").glob("*.deb")):
        unpacked = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
        # what base-files would bring, since trixie: /lib and /bin are /usr/lib and /usr/bin
        subprocess.run(["tar", "-xf", "-", "-C", path, "--keep-directory-symlink"], input=unpacked, check=True)
        package.unlink()
    for name in ("lib", "bin"):
        if not (path / name).exists():
            (path / name).symlink_to(f"usr/{name}")
    (path / "ready").touch()


if __name__ == "__main__":
    for wanted in sys.argv[1:] or DEBIAN:
        make(wanted)
        print(f"{wanted}: {root(wanted)}")
