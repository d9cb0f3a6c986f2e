"""The market on many machines: Flower's SuperLink and SuperNodes instead of worker processes.

``deployment`` starts and stops real Flower processes on this machine; ``keys`` makes their
certificates and keys, ``guard`` sees to it that none outlives us. On an owner's side ``owner`` is
its folder (records, terms, journal) and ``client`` its ClientApp. On the curator's side ``engine``
trains over Flower's grid, and ``server`` runs a whole job in a ServerApp. For an app of one's own
there are ``mod`` on an owner's side, ``strategy`` on the curator's, and ``agreements`` between
them. Only Flower's public modules are used: ``api`` names all that is.
"""
