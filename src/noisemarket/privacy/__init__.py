"""The privacy that an owner gives up, the noise that protects it, and the curator's checks.

``zcdp`` is the mathematics; ``accountant`` adds up the cost of a job, in memory or on disk;
``noise`` is the noise, and ``noise_check`` the curator's tests of an upload.
"""
