"""Starting and stopping real Flower processes on one machine.

``deployment`` is a SuperLink and SuperNodes, ``certificates`` makes their certificates and keys,
``guard`` ends them should this process die. ``single_machine`` runs a whole market on one.
"""
