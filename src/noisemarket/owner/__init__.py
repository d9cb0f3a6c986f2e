"""What a data owner does: it plays, compares and signs, trains, adds its noise, and keeps account.

One owner for all: the worker processes of this machine, Flower's ClientApp and the tests use it.
"""
