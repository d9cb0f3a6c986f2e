"""The owner's side: an ordinary Flower ClientApp, and one mod around its training."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from moons_app import task
from noisemarket.flower.client_mod import contract_mod
from noisemarket.owner.folder import OwnerFolder

app = ClientApp()


@app.train(mods=[contract_mod()])
def train(message: Message, context: Context) -> Message:
    """Load the global model, train it on the owner's records, send it back: the mod does the rest.

    The loss stays with the owner. The mod drops it, because nothing accounts for it.
    """
    model = task.perceptron()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    own = OwnerFolder.of(context.node_config)
    points, labels = (torch.from_numpy(values) for values in own.records())
    loss = task.train(model, points, labels)
    metrics = MetricRecord({"num-examples": len(labels), "loss": loss})
    reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(reply, reply_to=message)
