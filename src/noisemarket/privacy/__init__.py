"""What an owner gives up, what hides it, and how the curator can tell.

``zcdp`` is the mathematics; ``statement`` what a contract fixes and what has become of it;
``accountant`` the ledger of a job, ``journal`` the same on disk; ``noise`` the noise itself; and
``compliance`` the curator's check that the noise in an upload is the contracted one.
"""
