"""Programs of jobs: they read ROOT files, the event format of the LHC experiments.

``venturi-root write`` creates files, ``venturi-root read`` reads a file and sums its bytes, and ``venturi-root serve`` keeps
the libraries in memory for many jobs. They need ``venturi[root]`` (uproot, and the XRootD client for ``root://``).

A job models reading and computing, without physics.

Read :mod:`venturi.application.read` first. This module imports nothing, so that jobs start fast.
"""
