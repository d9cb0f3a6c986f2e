"""FedAvg as most tutorials write it: a DataLoader and an optim.SGD per owner, one after another."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader

from benchmarks.peers import common


def main() -> None:
    """Train every owner from a copy of the global model, then average."""
    task = common.Task.given()
    owned = common.owned(task.owners, task.each)
    loaders = [DataLoader(own, batch_size=common.BATCH, shuffle=True) for own in owned]
    model, loss = common.first_model(), nn.CrossEntropyLoss()
    rounds = common.Rounds()
    rounds.start()
    for _ in range(task.rounds):
        states = []
        for loader in loaders:
            local = copy.deepcopy(model)
            optimizer = torch.optim.SGD(local.parameters(), lr=common.RATE)
            for seen, right in loader:
                optimizer.zero_grad()
                loss(local(seen), right).backward()
                optimizer.step()
            states.append(local.state_dict())
        mean = {name: torch.stack([s[name] for s in states]).mean(0) for name in states[0]}
        model.load_state_dict(mean)
        rounds.done()
    common.say(accuracy=common.accuracy(model, common.load(task)))


if __name__ == "__main__":
    main()
