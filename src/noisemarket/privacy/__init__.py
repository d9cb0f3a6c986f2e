"""What an owner gives up, what hides it, and how the curator can tell.

``zcdp`` is the mathematics; ``statement`` what a contract fixes and what was spent of it;
``accountant`` counts the cost of a job, ``journal`` keeps it on disk; ``noise`` is the noise, and
``noise_check`` the curator's check of the noise in an upload.
"""
