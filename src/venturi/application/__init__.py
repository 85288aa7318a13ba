"""What the jobs of a batch do: programs that read files of ROOT, as analyses at the LHC keep their events.

``venturi-root write`` makes such files, ``venturi-root read`` goes through one and sums what it holds, ``venturi-root serve`` holds
the libraries ready for many jobs at once. They need ``venturi[root]`` (uproot, and for ``root://`` the XRootD client).

Left out on purpose: any physics. A job here is how it reads and how much it computes.

Read :mod:`venturi.application.read` first. Nothing is imported here: a job that a server starts must begin at once.
"""
