"""The step count from the request id: two generations of SGLang's adaptive controller, and every way not to get it."""

from __future__ import annotations

import pytest


class Controller:
    """0.5.11 and 0.5.12: decides after verify, and tells nobody beforehand."""

    def __init__(self, worker, candidates=(1, 2, 5)):
        self.worker, self.candidate_steps = worker, list(candidates)
        self.policy = []
        self.switches = []

    def on_verify_complete(self, correct):
        self.policy.append(list(correct))

    def _activate(self, steps):
        assert steps in self.candidate_steps
        self.worker.speculative_num_steps = steps
        self.switches.append(steps)


class ControllerByBatch(Controller):
    """From 0.5.13 on: decides before draft, too."""

    def on_verify_complete(self, correct, batch_size):
        self.policy.append((list(correct), batch_size))

    def activate_step_by_batch(self, batch_size):
        self.policy.append(batch_size)


class Server:
    """A worker with its controller, which decodes as a patched one does, with the probe that is in force at that time."""

    def __init__(self, module, machine, controller):
        self.module, self.machine = module, machine
        self.worker = machine.worker
        self.worker.speculative_num_steps = 2
        self.worker.adaptive_controller = controller and controller(self.worker)

    @property
    def controller(self):
        return getattr(self.worker, "adaptive_controller", None)

    def cycle(self, *rids, correct=1):
        m, controller, batch = self.machine, self.controller, self.machine.batch(len(rids))
        for req, rid in zip(batch.reqs, rids, strict=True):
            req.rid = rid
        probe = self.module.probe
        if probe is not None:
            probe.enter()
            probe.begin(self.worker, batch)
        if hasattr(controller, "activate_step_by_batch"):
            controller.activate_step_by_batch(len(rids))
        steps = self.worker.speculative_num_steps
        for index, ms in enumerate((0.5 * steps, 15.0, 1.0), 1):
            m.launch(ms)
            if probe is not None:
                probe.mark(index)
        counts = [min(correct, steps)] * len(rids)
        if controller is not None:
            sizes = (len(rids),) if hasattr(controller, "activate_step_by_batch") else ()
            controller.on_verify_complete(counts, *sizes)
        if probe is not None:
            probe.end(counts, None)
        m.idle(0.0001)
        return steps

    def cycles(self, count, *rids):
        return [self.cycle(*rids) for _ in range(count)]


@pytest.fixture(params=[Controller, ControllerByBatch], ids=["0.5.12", "0.5.13"])
def controller(request):
    return request.param


@pytest.fixture
def server(machine, module):
    def make(controller, **settings):
        log = []
        m = machine(chooser=module.StepChooser(out=log.append), every=1000, **settings)
        made = Server(module, m, controller)
        made.log = log
        return made

    return make


@pytest.fixture
def alone(machine, module):
    """Measuring is off: the chooser stands in for the probe."""

    def make(controller):
        made = Server(module, machine(), controller)
        made.log = []
        module.probe = module.StepChooser(out=made.log.append)
        return made

    return make


@pytest.mark.parametrize(
    ("rid", "steps", "measured"),
    [
        ("k=5/p=0/my-id", 5, False),
        ("p=0/k=5/my-id", 5, False),
        ("k=5/", 5, True),
        ("p=1/x", None, True),
        ("p=0/x", None, False),
        ("k=0/x", 0, True),
        ("k=010/x", 10, True),
        ("my-id", None, True),
        ("", None, True),
        ("x/k=5/p=0/", None, True),
        ("k=5", None, True),
        ("k=/x", None, True),
        ("k=-1/x", None, True),
        ("k=1000/x", None, True),
        ("p=2/x", None, True),
        ("k=5/k=2/p=0/x", 5, True),
        ("p=1/k=5/p=0/x", 5, True),
        ("K=5/x", None, True),
        ("k=\u0665/x", None, True),
        (17, None, True),
    ],
)
def test_the_beginning_of_a_request_id_is_read_like_this(module, rid, steps, measured):
    assert module._read(rid) == (steps, measured)


def test_from_0_5_13_on_the_first_cycle_runs_with_the_steps_asked_for(server):
    s = server(ControllerByBatch)
    assert s.cycles(3, "k=5/a") == [5, 5, 5]
    assert s.cycles(2, "k=1/b") == [1, 1]
    assert s.controller.switches == [5, 1]


def test_before_0_5_13_the_steps_change_after_the_first_cycle(server):
    s = server(Controller)
    assert s.cycles(3, "k=5/a") == [2, 5, 5]
    assert s.cycles(3, "k=1/b") == [5, 1, 1]
    assert s.controller.switches == [5, 1]


def test_the_controllers_own_policy_rests(server, controller):
    s = server(controller)
    s.cycles(5, "k=5/a")
    s.cycles(5, "b")
    assert s.controller.policy == []


def test_a_request_that_asks_for_nothing_gets_the_steps_of_the_launch(server, controller):
    s = server(controller)
    s.cycles(2, "k=5/a")
    assert s.cycles(3, "plain")[1:] == [2, 2]


def test_a_batch_that_agrees_switches_and_one_that_does_not_stays_as_it_is(server, controller):
    s = server(controller)
    assert s.cycles(3, "k=5/a", "k=5/b")[1:] == [5, 5]
    assert s.cycles(3, "k=5/a", "k=5/b", "k=1/c") == [5, 5, 5]
    assert s.cycles(3, "k=5/a", "health-check") == [5, 5, 5]
    assert s.cycles(3, "k=1/c")[1:] == [1, 1]
    assert s.log[-1] == "EAGLE3_STEPS k=? served unchanged: requests differ"


def test_steps_that_were_not_captured_are_served_as_if_nothing_was_asked(server, controller, records):
    s = server(controller)
    s.cycles(3, "k=5/a")
    assert s.cycles(4, "k=7/b")[1:] == [2, 2, 2]
    s.machine.flush()
    found = [asked for block in records() for asked in block["steps_from_rid"]]
    assert {"wanted": 7, "active": 2, "why": "not captured", "cycles": 4 - (controller is Controller)} in found
    assert s.log == [
        "EAGLE3_STEPS active: launched with 2 steps, captured 1,2,5",
        "EAGLE3_STEPS k=7 served unchanged: not captured",
    ]


@pytest.mark.parametrize("missing", ["attribute", "value"])
def test_without_a_controller_requests_are_served_unchanged(server, records, missing):
    s = server(None)
    if missing == "attribute":
        del s.worker.adaptive_controller
    assert s.cycles(3, "k=5/a") == [2, 2, 2]
    s.machine.flush()
    (block,) = records()
    assert block["steps_from_rid"] == [{"wanted": 5, "active": 2, "why": "no controller", "cycles": 3}]
    assert s.log == [
        "EAGLE3_STEPS inactive: the worker has no adaptive controller",
        "EAGLE3_STEPS k=5 served unchanged: no controller",
    ]


def test_every_block_says_what_was_asked_for(server, records):
    s = server(Controller)
    s.cycles(3, "k=5/a")
    s.cycles(2, "plain")
    s.cycles(2, "k=2/b", "k=5/c")
    s.machine.flush()
    blocks = {(block["steps"], block["batch_size"]): block for block in records()}
    asked = {key: block["steps_from_rid"] for key, block in blocks.items()}
    assert asked == {
        (2, 1): [
            {"wanted": 5, "active": 2, "why": "not yet", "cycles": 1},
            {"wanted": None, "active": 2, "why": None, "cycles": 1},
        ],
        (5, 1): [
            {"wanted": 5, "active": 5, "why": None, "cycles": 2},
            {"wanted": None, "active": 5, "why": None, "cycles": 1},
        ],
        (2, 2): [{"wanted": None, "active": 2, "why": "requests differ", "cycles": 2}],
    }
    assert all(sum(a["cycles"] for a in asked[key]) == block["decode_cycles"] for key, block in blocks.items())


def test_cycles_are_keyed_by_the_steps_that_they_ran_with(server, controller, records):
    s = server(controller)
    ran = [*s.cycles(4, "k=5/a"), *s.cycles(4, "k=1/b"), *s.cycles(4, "k=2/c")]
    s.machine.flush()
    for block in records():
        assert block["decode_cycles"] == ran.count(block["steps"])
        assert set(block["event_ms"]["draft"]) == {0.5 * block["steps"]}


def test_requests_that_are_not_measured_are_given_their_steps_too(server, controller, records):
    s = server(controller)
    assert s.cycles(3, "p=0/k=5/a")[1:] == [5, 5]
    s.cycles(2, "k=5/b")
    s.machine.flush()
    (block,) = records()
    assert (block["steps"], block["decode_cycles"], block["skipped"]) == (5, 2, 3)


def test_without_the_switch_records_say_nothing_of_it_and_the_controller_is_its_own(machine, module, records):
    s = Server(module, machine(), Controller)
    assert s.cycles(3, "k=5/a") == [2, 2, 2]
    s.machine.flush()
    assert "steps_from_rid" not in records()[0]
    assert len(s.controller.policy) == 3


def test_steps_are_chosen_with_measuring_off(alone, controller, tmp_path):
    s = alone(controller)
    assert s.cycles(3, "k=5/a")[1:] == [5, 5]
    assert s.machine.events == 0
    assert not (tmp_path / "records").exists()


def test_a_probe_that_fails_leaves_the_choice_of_steps_in_force(server, controller, module, monkeypatch):
    s = server(controller)
    s.cycles(3, "k=5/a")
    monkeypatch.setattr(s.machine.probe, "_reason", lambda _size: 1 / 0)
    s.cycle("k=5/a")
    assert s.machine.log[-1].startswith("EAGLE3_PROF probe off: ZeroDivisionError")
    assert s.cycles(3, "k=1/b")[1:] == [1, 1]
    assert s.controller.policy == []


def test_a_switch_that_fails_turns_the_choice_off_once_and_gives_the_controller_back(server, controller, records):
    s = server(controller)
    s.cycles(2, "k=5/a")
    s.controller._activate = lambda steps: 1 / 0
    assert s.cycles(3, "k=1/b") == [5, 5, 5]
    assert s.cycles(3, "k=2/c") == [5, 5, 5]
    assert s.log[1:] == ["EAGLE3_STEPS off: ZeroDivisionError: division by zero"]
    assert s.controller.policy != []
    s.machine.flush()
    (why,) = {asked["why"] for block in records() for asked in block["steps_from_rid"]} - {None, "not yet"}
    assert why == "off"


def test_a_failing_choice_that_stands_in_for_the_probe_is_gone_after(alone, controller, module):
    s = alone(controller)
    s.controller._activate = lambda steps: 1 / 0
    s.cycle("k=5/a")
    assert module.probe is None
    assert s.log[-1] == "EAGLE3_STEPS off: ZeroDivisionError: division by zero"


def test_a_controller_of_another_make_is_left_alone(alone, module):
    s = alone(lambda worker: object())
    module.probe.begin(s.worker, s.machine.batch(1, rid="k=5/"))
    assert module.probe is None
    assert s.log[-1].startswith("EAGLE3_STEPS off: AttributeError")


def test_a_log_that_cannot_be_written_changes_no_steps(alone, controller, module):
    s = alone(controller)

    def closed(_text):
        raise OSError("closed")

    module.probe._out = closed
    assert s.cycles(2, "k=7/a") == [2, 2]
    assert s.cycles(3, "k=5/b")[1:] == [5, 5]


def test_an_idle_batch_changes_nothing(server, controller):
    s = server(controller)
    s.cycles(2, "k=5/a")
    s.module.probe.begin(s.worker, s.machine.batch(0))
    assert s.cycles(2, "k=5/a") == [5, 5]


@pytest.mark.parametrize(
    ("environ", "kind", "chooses"),
    [
        ({"EAGLE3_STEPS_FROM_RID": "1"}, "StepChooser", True),
        ({"EAGLE3_STEPS_FROM_RID": "1", "EAGLE3_PROFILE": "0"}, "StepChooser", True),
        ({"EAGLE3_STEPS_FROM_RID": "1", "EAGLE3_PROFILE": "1"}, "Probe", True),
        ({"EAGLE3_STEPS_FROM_RID": "0", "EAGLE3_PROFILE": "1"}, "Probe", False),
        ({"EAGLE3_STEPS_FROM_RID": "1", "EAGLE3_PROFILE": "1", "EAGLE3_PROFILE_EVERY": "x"}, "StepChooser", True),
    ],
)
def test_the_environment_asks_for_either_or_both(module, environ, kind, chooses):
    made = module.from_environment(environ)
    assert type(made).__name__ == kind
    assert (kind == "StepChooser" or made._chooser is not None) is chooses
