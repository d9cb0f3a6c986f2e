"""Per-example clipping: our clipped step against every mode of Opacus, in turns, on one thread.

All take the same batches of the same images from the same network, laid out channels-last. Times
are CPU seconds per batch, with noise: ours from the operating system, Opacus's from torch's
generator, which is its default. Opacus's data loader is left out.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers import common
from noisemarket.federated.models.cnn import CNN
from noisemarket.federated.models.torch_model import TorchModel, TorchRecords
from noisemarket.privacy.noise import SecureNoise, add_noise

MODES = ("hooks", "functorch", "ew", "ghost")
CLIP, MULTIPLIER = 1.0, 1.0
WIDTHS = {"80,202 parameters": ((16, 32), 128), "8 and 16 channels, 32 hidden": ((8, 16), 32)}
Step = Callable[[torch.Tensor, torch.Tensor], None]


def _network(widths: tuple[tuple[int, int], int]) -> CNN:
    torch.manual_seed(1)
    return CNN(*widths)


def _ours(widths: tuple[tuple[int, int], int]) -> Step:
    model, noise = TorchModel(_network(widths)), SecureNoise()
    weights = model.first_weights()
    sigma = MULTIPLIER * CLIP * common.RATE / common.BATCH

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        summed = model.clipped_gradient(weights, TorchRecords(images, labels), CLIP)
        move = summed * np.float32(-common.RATE / common.BATCH)
        weights[:] += add_noise(move, sigma, noise)

    return step


def _opacus(widths: tuple[tuple[int, int], int], mode: str, data: TensorDataset) -> Step:
    network = _network(widths).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=common.RATE)
    ghost = mode == "ghost"
    made = PrivacyEngine().make_private(
        module=network,
        optimizer=optimizer,
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(data, batch_size=common.BATCH),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    module, private = made[0], made[1]
    criterion = made[2] if ghost else nn.CrossEntropyLoss()

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        private.zero_grad()
        criterion(module(images), labels).backward()
        private.step()

    return step


def main() -> None:
    """Options: batches per turn, turns."""
    warnings.simplefilter("ignore")
    task = common.Task.given()
    torch.set_num_threads(1)
    batches, turns = (int(task.options[name]) for name in ("batches", "turns"))
    images, labels = common.tensors(common.load(common.Task(owners=1, each=64 * batches)))
    images = images.contiguous(memory_format=torch.channels_last)
    data = TensorDataset(images, labels)
    parts = [slice(64 * i, 64 * (i + 1)) for i in range(batches)]
    for name, widths in WIDTHS.items():
        steps: dict[str, Step] = {"ours": _ours(widths)}
        for mode in MODES:
            steps[mode] = _opacus(widths, mode, data)
        best = dict.fromkeys(steps, math.inf)
        for turn in range(turns + 1):
            for who, step in steps.items():
                start = time.process_time()
                for part in parts:
                    step(images[part], labels[part])
                if turn > 0:  # the first is for warming up
                    best[who] = min(best[who], (time.process_time() - start) / batches)
        common.say(network=name, seconds=best)


if __name__ == "__main__":
    main()
