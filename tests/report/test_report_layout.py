"""The diagram of a testbed agrees with the plan, and all labels are readable."""

import itertools
import json
import tomllib
from types import SimpleNamespace

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from planted import product
from planted_lab import World, lab_run

from venturi.analysis import analyse
from venturi.analysis.testbed_diagram import layout
from venturi.plan import emit_header
from venturi.report import html
from venturi.report.testbed_drawing import diagram_pictures
from venturi.report.theme import styled
from venturi.scenario import load_scenario, scenario_from
from venturi.study import study
from venturi.workload import expand


def drawn(scenario):
    """Return the layout of the testbed of a scenario, and its diagrams."""
    found = layout(json.loads(emit_header(expand(scenario).header)))
    with styled():
        return found, diagram_pictures(SimpleNamespace(testbed=SimpleNamespace(layout=found, changes=())))


def on_testbed(text):
    """Return a scenario with this testbed, in which one host copies to itself."""
    output = tomllib.loads(text)
    name = next(iter(output["host"]))
    output["storage"] = {"disk": {"host": name, "path": "disk"}}
    workload = {
        "kind": "sweep",
        "mover": "cp",
        "source": "disk",
        "destination": "disk",
        "factors": {"size": ["1 kB"]},
    }
    return scenario_from({"venturi": 1, "name": "t", "testbed": output, "workload": workload})


def words_of(picture):
    """Return the texts of a diagram with their bounding boxes in pixels."""
    canvas = FigureCanvasAgg(picture.figure)
    with styled():
        canvas.draw()
    texts = [text for text in picture.figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
    return {text: text.get_window_extent(canvas.get_renderer()) for text in texts}


@pytest.mark.parametrize(
    "name", ["alice/flat", "alice/matrix", "ani/gridftp", "ani/squid", "ani/srm", "fiu/dgt", "fiu/xrootd"]
)
def test_labels_in_the_diagram_of_a_study_do_not_overlap_or_exceed_the_edge(name):
    found, (picture,) = drawn(load_scenario(study(name).scenario_path, overrides=list(study(name).lab)))
    boxes = words_of(picture)
    shown = "\n".join(text.get_text() for text in boxes)
    assert all(node.name in shown.split() for node in found.nodes)
    for (one, box), (other, its) in itertools.combinations(boxes.items(), 2):
        across = min(box.x1, its.x1) - max(box.x0, its.x0)
        down = min(box.y1, its.y1) - max(box.y0, its.y0)
        # Letters fill the middle of their boxes. The lowest dots of one and the highest of the next can share a line.
        assert across <= 0 or down <= 2, (one.get_text(), other.get_text())
    width, height = picture.figure.canvas.get_width_height()
    assert all(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height for box in boxes.values())


def test_the_26_machines_of_report_004_are_drawn_in_separate_rows():
    found, (picture,) = drawn(load_scenario(study("alice/flat").scenario_path))
    hosts = [node for node in found.nodes if node.is_host]
    assert len(hosts) == 27, "with the one that stands for everybody else"
    boxes = {text.get_text().split("\n")[0]: box for text, box in words_of(picture).items()}
    sides = [
        [boxes[host.name] for host in hosts if (boxes[host.name].x0 < boxes["backbone"].x0) == left]
        for left in (True, False)
    ]
    assert min(map(len, sides)) >= 10
    for side in sides:
        assert len({round(box.y0) for box in side}) == len(side)
    # Table 1 of the report: Catania 34 Mb/s. Table 5: CNAF to Catania 25 ms, which includes 1 ms of CNAF's link.
    assert "catania to backbone 34 Mb/s, 24 ms" in picture.alt


def test_both_directions_of_a_link_are_drawn_once_and_equal_links_are_counted():
    found, (picture,) = drawn(
        on_testbed("""
        [host.a]
        [host.b]
        [router.r]
        [link]
        one = { between = ["a", "r"], rate = "1 Gb/s", rtt = "4 ms" }
        two = { between = ["a", "r"], rate = "1 Gb/s", rtt = "4 ms" }
        slow = { between = ["b", "r"], rate = ["100 Mb/s", "10 Mb/s"] }
        side = { between = ["a", "b"], rate = "5 Gb/s" }
        """)
    )
    link_bundles = {(bundle.start_node, bundle.end): bundle for bundle in found.link_bundles}
    assert {ends: bundle.count for ends, bundle in link_bundles.items()} == {
        ("a", "r"): 2,
        ("b", "r"): 1,
        ("a", "b"): 1,
    }
    assert link_bundles["a", "r"].rtt_s == pytest.approx(0.004)
    texts = [text.get_text() for text in words_of(picture)]
    # The scenario describes the link from b; the link from the router to b is its reverse direction.
    assert {"2 × 1 Gb/s, 4 ms", "10 Mb/s / 100 Mb/s"} <= set(texts)
    assert sum("also to" in text for text in texts) == 1


def test_unconnected_hosts_are_drawn_and_too_many_hosts_are_not():
    def pairs(count):
        hosts = "".join(f"[host.h{number}]\n" for number in range(2 * count))
        links = (f'l{n} = {{ between = ["h{2 * n}", "h{2 * n + 1}"], rate = "1 Gb/s" }}\n' for n in range(count))
        return on_testbed(f"{hosts}[link]\n{''.join(links)}")

    found, (picture,) = drawn(pairs(3))
    names = {text.get_text().split("\n")[0] for text in words_of(picture)}
    assert {node.name for node in found.nodes} <= names
    assert drawn(pairs(45))[1] == []


def test_only_the_page_of_a_lab_run_has_the_diagram(tmp_path):
    analysis = analyse(lab_run(tmp_path, product(files=[1], size_bytes=[10**6]), World()))
    page = html(analysis)
    assert page.count("Testbed layout") >= 1
    assert page.index("Testbed layout") > page.index("Emulated testbed")
    assert diagram_pictures(SimpleNamespace(testbed=None)) == []
