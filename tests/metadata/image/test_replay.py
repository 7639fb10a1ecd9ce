"""FAULTS I13: the same records give the same state, byte for byte: in another process, and from a snapshot on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from streamlog.metadata.image.image import MetadataImage
from streamlog.metadata.image.snapshot import encode_snapshot
from streamlog.metadata.image.state_machine import MetadataStateMachine
from tests.metadata.data_model import DataModel
from tests.metadata.invariants import check_structure


def stream(image: MetadataImage) -> bytes:
    return b"".join(encode_snapshot(image))


def life(seed: int, steps: int = 200) -> DataModel:
    model = DataModel(seed, synced=True)
    model.run(steps)
    return model


@pytest.mark.parametrize("seed", range(6))
def test_from_the_beginning_and_from_any_snapshot(seed: int) -> None:
    rig = life(seed).rig
    machine = MetadataStateMachine()
    snapshots = []
    for index, command in rig.log:
        assert machine.apply(index, command) == b""
        snapshots.append(b"".join(machine.encode(machine.picture())))
    assert machine.image.index == rig.image.index
    assert snapshots[-1] == stream(rig.image)
    for at in random.Random(seed).sample(range(len(rig.log)), 4):
        other = MetadataStateMachine()
        picture = other.decode([snapshots[at]])
        other.install(rig.log[at][0], picture)
        for index, command in rig.log[at + 1 :]:
            other.apply(index, command)
        assert stream(other.image) == snapshots[-1]
        check_structure(other.image)


def test_a_listener_hears_of_every_image() -> None:
    received: list[tuple[int, bool]] = []
    rig = life(1, steps=60).rig
    machine = MetadataStateMachine(lambda image, delta: received.append((image.index, delta is None)))
    for index, command in rig.log:
        machine.apply(index, command)
    machine.install(rig.log[-1][0], rig.image)
    assert received == [*((index, False) for index, _ in rig.log), (rig.image.index, True)]


def fingerprint(seed: int) -> str:
    """Of everything that the controller wrote, and what came of it."""
    rig = life(seed).rig
    digest = sha256(stream(rig.image))
    for index, command in rig.log:
        digest.update(f"{index}:".encode() + command)
    return digest.hexdigest()


def test_decisions_and_images_do_not_depend_on_the_process() -> None:
    """No hash order, no address leaks into a decision: other hash seeds, the same bytes."""
    root = Path(__file__).parents[3]
    prints = []
    for hash_seed in ("0", "1"):
        run = subprocess.run(
            [sys.executable, "-c", "from tests.metadata.image.test_replay import fingerprint; print(fingerprint(3))"],
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        prints.append(run.stdout)
    assert prints[0] == prints[1] == fingerprint(3) + "\n"
