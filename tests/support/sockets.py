"""Sockets in folders, as what a file may turn out to be."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def make_socket(path: Path) -> None:
    """Make a socket at a path of any length."""
    before = os.getcwd()
    os.chdir(path.parent)  # a socket's own path may be 100 characters long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(before)
