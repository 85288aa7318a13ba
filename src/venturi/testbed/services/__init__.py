"""Server programs of a lab: one file a program, each configured from scratch in its own folder.

They know nothing of the network below them, nor of plans being carried out. Read :class:`Service` first.
"""
