"""Server programs of a testbed: one module per program, each configured from scratch in its own directory.

They depend neither on the network nor on the execution of plans. Start with
:class:`venturi.testbed.services.base.ServiceKind`.
"""
