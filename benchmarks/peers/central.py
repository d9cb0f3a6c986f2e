"""The limit: the same network on the same images with no owners, in large batches, two threads."""

from __future__ import annotations

import os

import torch

from benchmarks.peers import common
from noisemarket.federated.models.torch_model import TorchModel, TorchRecords


def main() -> None:
    """One pass over all images is a round."""
    task = common.Task.given()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    data = common.load(task)
    images, labels = common.tensors(data)
    images = images.contiguous(memory_format=torch.channels_last)
    model = TorchModel(common.first_model())
    weights = model.first_weights()
    rounds = common.Rounds()
    rounds.start()
    for _ in range(task.rounds):
        for at in range(0, len(labels), common.CENTRAL_BATCH):
            part = slice(at, at + common.CENTRAL_BATCH)
            model.descend(weights, TorchRecords(images[part], labels[part]), common.RATE)
        rounds.done()
    common.say(accuracy=common.accuracy(model.module, data))


if __name__ == "__main__":
    main()
