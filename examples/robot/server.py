"""A server that drives robots: `uvicorn server:app`. It needs no PyTorch."""

from __future__ import annotations

import os

from fastapi import FastAPI, HTTPException

import rlcatalog
from rlcatalog.errors import CatalogError

actor = rlcatalog.Actor(os.environ.get("POLICY", "policy.onnx"))
memories = {}  # the name of a robot -> the state of its LSTM
app = FastAPI()


@app.post("/robots/{name}/start")
def start(name: str) -> None:
    """Begin an episode: forget what the robot has seen."""
    memories.pop(name, None)


@app.post("/robots/{name}/act")
def act(name: str, observation: dict) -> dict:
    """Return the action for an observation, and remember the state of the LSTM."""
    try:
        step = actor.act([observation], memories.get(name), explore=False)
    except CatalogError as error:
        raise HTTPException(422, str(error)) from error
    memories[name] = step.state
    return {part: values[0].tolist() for part, values in step.action.items()}
