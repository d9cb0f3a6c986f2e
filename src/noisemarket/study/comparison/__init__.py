"""Which mechanism to use: all of them on the same owners and data, through to the trained model.

``decisions`` has what each mechanism buys, ``trainings`` what the model comes to, ``results`` both
together over the seeds, ``significance`` which differences are more than chance.
"""
