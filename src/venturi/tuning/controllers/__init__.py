"""Controllers: rules that choose settings of transfers from probes, one file each.

:mod:`venturi.tuning.controllers.table` lists them.
"""
