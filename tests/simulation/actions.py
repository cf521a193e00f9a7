"""What agents, workers and people do, each a method that draws from the seed what it does it to."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from hopline.quota.v1 import credit_pb2
from hopline.relay.v1 import dead_letter_pb2 as letters_pb
from hopline.relay.v1 import delegation_pb2 as turns_pb
from hopline.relay.v1 import escalation_pb2 as owner_pb
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import session_pb2, tool_pb2
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import milliseconds_of

from tests.simulation.quotas import require
from tests.simulation.story import Story
from tests.simulation.workers import Start, Worker
from tests.simulation.world import CREW, Member, World

_REQUEST_SECONDS = 86_400.0 - 1.0
_KEPT = 12  # what an agent remembers of each kind


class Memory:
    """What an agent has come across and may name in a call."""

    def __init__(self) -> None:
        self.inbox: list[str] = []
        self.asked: list[str] = []
        self.threads: list[str] = []
        self.sessions: list[str] = []
        self.peer_sessions: list[str] = []
        self.questions: list[str] = []
        self.requests: list[tuple[str, Callable[[str], Awaitable[Any]], str]] = []

    @staticmethod
    def keep(kept: list[Any], value: Any) -> None:
        """Remember a value in place of the oldest."""
        if value and value not in kept:
            kept.append(value)
            del kept[:-_KEPT]


class Actions:
    """Everything that may happen in one run."""

    def __init__(self, world: World, cast: list[Member], person: Member, rng: random.Random) -> None:
        self.world = world
        self.cast = cast
        self.person = person
        self.rng = rng
        self.story = Story()
        self.memories = {member.id: Memory() for member in [*cast, person]}
        self.names = {member.id: member.name for member in [*cast, person]}
        self.workers: list[Worker] = []
        self.calls: dict[asyncio.Task[None], str] = {}
        # Accepted messages by request id, attempts given to workers.
        self.accepted: dict[str, str] = {}
        self.given: set[tuple[str, int]] = set()
        # Sessions that somebody was told of, with whose they are.
        self.opened: list[tuple[str, str]] = []
        self.broken: list[str] = []
        self.number = 0

    # -- calls -------------------------------------------------------------------------------------

    def call(
        self, who: str, what: str, work: Awaitable[Any], then: Callable[[Any], None] = lambda _: None
    ) -> None:
        """Begin a call; the run goes on meanwhile."""
        self.story.tell(f"{who} {what}")
        self.number += 1
        number = self.number
        task = asyncio.get_running_loop().create_task(self._call(number, who, what, work, then))
        task.set_name(f"call {number:06}")
        self.calls[task] = who
        task.add_done_callback(lambda done: self.calls.pop(done, None))

    async def _call(
        self, number: int, who: str, what: str, work: Awaitable[Any], then: Callable[[Any], None]
    ) -> None:
        verb = what.split()[0]
        try:
            answer = await work
        except HoplineError as error:
            self.story.refused[error.reason] += 1
            self.story.tell(f"    {who} {verb}: {error.reason}")
            if error.reason == "internal":
                self.broken.append(f"{who} {what} failed: {error.message}")
            return
        except asyncio.CancelledError:
            self.story.tell(f"    {who} {verb}: gave up")
            raise
        except Exception as error:
            self.broken.append(f"{who} {what} failed: {error!r}")
            return
        self.story.did[f"{verb} done"] += 1
        try:
            then(answer)
        except AssertionError as error:
            self.broken.append(str(error))

    def one(self) -> Member:
        """Draw an agent."""
        return self.rng.choice(self.cast)

    def peer(self, agent: Member) -> Member:
        """Draw somebody to talk to: mostly one that the agent may reach."""
        found = self.one()
        if self.rng.random() < 0.9:
            while found is agent or (found.name in CREW and agent.name not in CREW):
                found = self.one()
        return found

    def some(self, kept: list[str], foreign: float = 0.05) -> str:
        """Draw something remembered; now and then what somebody else remembers, or nothing there is."""
        if self.rng.random() < foreign:
            other = self.memories[self.one().id]
            kept = self.rng.choice([other.inbox, other.asked, other.threads, other.sessions])
        return self.rng.choice(kept) if kept else "nothing_there"

    def _session(self, memory: Memory) -> str:
        return self.some(memory.sessions) if self.rng.random() < 0.3 else ""

    def _request_id(self) -> str:
        if self.rng.random() < 0.3:
            return str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
        return ""

    # -- what agents do ----------------------------------------------------------------------------

    def send(self) -> None:
        """Send to one or a few, into a thread or a new one."""
        agent, memory = self.mind()
        count = 1 if self.rng.random() < 0.7 else self.rng.randint(2, 4)
        to = list({one.id: one for one in [self.peer(agent) for _ in range(count)]}.values())
        request = pb.SendRequest(
            to=[self.rng.choice((one.id, one.name)) for one in to],
            text=self._text(),
            request_id=self._request_id(),
            caller_session_id=self._session(memory),
        )
        if self.rng.random() < 0.35 and memory.threads:
            request.thread_id = self.some(memory.threads)
        self._sends(agent, "sends", request, agent.messages.Send, " ".join(one.name for one in to))

    def _sends(self, agent: Member, verb: str, request: Any, method: Any, whom: str) -> None:
        memory = self.memories[agent.id]
        if request.request_id:
            memory.requests.append((verb, method, request.SerializeToString().hex()))
            del memory.requests[:-_KEPT]

        def then(answer: Any) -> None:
            self._accepted(agent, request.request_id, answer.message_id)
            memory.keep(memory.threads, answer.thread_id)

        self.call(agent.name, f"{verb} to {whom}", method(request), then)

    def _accepted(self, agent: Member, request_id: str, message_id: str) -> None:
        """The same request is the same message, for a day by the wall clock, which may have been ahead."""
        if not request_id:
            return
        key = f"{agent.id} {request_id}"
        known = self.accepted.get(key, message_id)
        made = milliseconds_of(known) / 1000
        require(
            # A clock that was set back behind it does not know it any more; one that was set on forgot it.
            known == message_id
            or self.world.time.now() < made
            or self.world.time.latest() - made >= _REQUEST_SECONDS,
            f"{agent.name} had {known} accepted, and then {message_id}",
        )
        self.accepted[key] = message_id

    def mind(self, kept: str = "") -> tuple[Member, Memory]:
        """Draw an agent, with what it remembers: mostly one that remembers something of a kind."""
        agent = self.one()
        for _ in range(4):
            if not kept or getattr(self.memories[agent.id], kept):
                break
            agent = self.one()
        return agent, self.memories[agent.id]

    def again(self) -> None:
        """Use a request id again, with the same content or another."""
        agent, memory = self.mind("requests")
        if not memory.requests:
            return self.send()
        verb, method, written = self.rng.choice(memory.requests)
        kind = pb.SendRequest if verb == "sends" else pb.ReplyRequest
        request = kind.FromString(bytes.fromhex(written))
        if self.rng.random() < 0.3:
            request.text = self._text()
        method = agent.messages.Send if verb == "sends" else agent.messages.Reply
        return self._sends(agent, verb, request, method, "whom it did before")

    def ask(self) -> None:
        """Ask somebody, and wait or not."""
        agent, memory = self.mind()
        peer = self.peer(agent)
        request = pb.AskRequest(
            agent=peer.id,
            text=self._text(),
            wait_seconds=self.rng.choice((0, 0, 5, 50)),
            request_id=self._request_id(),
            caller_session_id=self._session(memory),
            own_endpoint=self.number % 4 == 0,
        )
        if self.rng.random() < 0.2 and memory.peer_sessions:
            request.session_id = self.some(memory.peer_sessions)
        elif request.own_endpoint and self.opened and self.rng.random() < 0.3:
            # Whoever has opened it, and hardly ever the one that asks.
            request.session_id, request.agent = self.rng.choice(self.opened)
        what = f"asks {peer.name}, waiting {request.wait_seconds} s"
        self.call(agent.name, what, agent.messages.Ask(request), lambda a: self._seen(agent, a.turn))

    def call_tool(self) -> None:
        """Call somebody's tool: mostly one that is there, with arguments that fit."""
        agent, memory = self.mind()
        there = [worker.agent for worker in self.workers if worker.attached and worker.agent is not agent]
        peer = self.rng.choice(there) if there and self.rng.random() < 0.7 else self.peer(agent)
        request = self._tool_request(peer)
        request.request_id = self._request_id()
        request.caller_session_id = self._session(memory)
        what = f"calls a tool of {peer.name}, for {request.timeout_seconds} s"
        self.call(agent.name, what, agent.tools.CallTool(request), lambda a: self._tool_seen(agent, a))

    def _tool_request(self, peer: Member) -> tool_pb2.CallToolRequest:
        return tool_pb2.CallToolRequest(
            agent=peer.id,
            name="look" if self.rng.random() < 0.95 else "listen",
            arguments_json='{"at": 1}' if self.rng.random() < 0.95 else '{"at": "x"}',
            timeout_seconds=self.rng.choice((1, 10, 50)),
        )

    def _tool_seen(self, agent: Member, answer: tool_pb2.CallToolResponse) -> None:
        require(
            (answer.turn.status == pb.TURN_STATUS_COMPLETED) == (answer.result_json == '"seen"'),
            f"{answer.turn.turn_id} came out as {answer.turn.status} with {answer.result_json!r}",
        )
        self._seen(agent, answer.turn)

    def answer_tool(self) -> None:
        """Have a worker answer the call of its tool, in one of the ways there are, or once more."""
        busy = [worker for worker in self.workers if worker.tool_calls and worker.attached]
        over = [worker for worker in self.workers if worker.tool_calls_over and worker.attached]
        if over and self.rng.random() < 0.1:
            worker = self.rng.choice(over)
            worker.answer(self.rng.choice(worker.tool_calls_over), result_json='"seen"')
        elif busy:
            worker = self.rng.choice(busy)
            call = worker.tool_calls[self.rng.choice(sorted(worker.tool_calls))]
            outcomes = [
                {"result_json": '"seen"'},
                {"result_json": '"seen"'},
                {"failure": "it is dark"},
                {"refusal": "at: not there"},
                {"result_json": "{"},
            ]
            outcome = self.rng.choice(outcomes)
            self.story.tell(f"worker {worker.number} answers {call.turn_id[-6:]}: {next(iter(outcome))}")
            worker.answer(call, **outcome)

    def _tool_called(self, worker: Worker, call: Any) -> None:
        self.story.did["calls given to workers"] += 1
        self.story.tell(f"    worker {worker.number} is called ({call.turn_id[-6:]}) at depth {call.depth}")
        if (call.turn_id, 1) in self.given:
            self.broken.append(f"the call {call.turn_id} was made twice")
        self.given.add((call.turn_id, 1))

    def _seen(self, agent: Member, view: pb.TurnView) -> None:
        """Remember a turn that was asked for."""
        memory = self.memories[agent.id]
        memory.keep(memory.asked, view.turn_id)
        memory.keep(memory.threads, view.thread_id)
        memory.keep(memory.peer_sessions, view.session_id)
        self.opened.append((view.session_id, view.agent.id))
        del self.opened[:-_KEPT]
        self.story.did[f"turn seen {pb.TurnStatus.Name(view.status)[12:].lower()}"] += 1

    def check(self) -> None:
        """Look at a turn, or wait for it."""
        agent, memory = self.mind("asked")
        request = pb.CheckRequest(
            wait_seconds=self.rng.choice((0, 3, 50)), caller_session_id=self._session(memory)
        )
        if memory.peer_sessions and self.rng.random() < 0.3:
            request.session_id = self.some(memory.peer_sessions)
        else:
            request.turn_id = self.some(memory.asked)
        self.call(
            agent.name,
            f"checks, waiting {request.wait_seconds} s",
            agent.messages.Check(request),
            lambda a: self._seen(agent, a.turn),
        )

    def ask_owner(self) -> None:
        """Ask the owner, often what was asked before, or look at a question."""
        agent, memory = self.mind()
        wait = self.rng.choice((0, 0, 5, 50))
        if memory.questions and self.rng.random() < 0.3:
            look = owner_pb.CheckEscalationRequest(
                escalation_id=self.some(memory.questions), wait_seconds=wait
            )
            work = agent.escalations.CheckEscalation(look)
            self.call(agent.name, f"looks for its owner, waiting {wait} s", work)
            return
        request = owner_pb.AskOwnerRequest(
            question=f"question {self.rng.randint(1, 4)}",
            options=self.rng.choice(([], ["yes", "no"])),
            wait_seconds=wait,
            request_id=self._request_id(),
            caller_session_id=self._session(memory),
        )
        self.call(
            agent.name,
            f"asks its owner, waiting {wait} s",
            agent.escalations.AskOwner(request),
            lambda a: self._asked(agent, a.escalation),
        )

    def _asked(self, agent: Member, question: Any) -> None:
        for memory in (self.memories[agent.id], self.memories[self.person.id]):
            memory.keep(memory.questions, question.id)
        self.story.did[f"question {owner_pb.EscalationStatus.Name(question.status)[18:].lower()}"] += 1

    def answer_owner(self) -> None:
        """Have a person answer a question, or take it back; now and then one that has ended."""
        identifier = self.some(self.memories[self.person.id].questions)
        if self.rng.random() < 0.2:
            request = owner_pb.WithdrawEscalationRequest(escalation_id=identifier, reason="not now")
            self.call("the person", "withdraws", self.person.escalations.WithdrawEscalation(request))
            return
        reply = owner_pb.AnswerEscalationRequest(
            escalation_id=identifier, text=self.rng.choice(("yes", "no"))
        )
        self.call("the person", "answers an agent", self.person.escalations.AnswerEscalation(reply))

    def take(self) -> None:
        """Read the inbox, and wait or not."""
        agent, memory = self.mind()
        request = pb.TakeInboxRequest(
            limit=self.rng.choice((0, 1, 3)),
            wait_seconds=self.rng.choice((0, 0, 0, 20)),
            caller_session_id=self._session(memory),
        )
        self.call(
            agent.name,
            f"reads its inbox, waiting {request.wait_seconds} s",
            agent.messages.TakeInbox(request),
            lambda a: self._got(agent, a.messages, a.session_id),
        )

    def _got(self, agent: Member, messages: Any, session_id: str = "") -> None:
        memory = self.memories[agent.id]
        for message in messages:
            memory.keep(memory.inbox, message.id)
            memory.keep(memory.threads, message.thread_id)
        memory.keep(memory.sessions, session_id)
        self.story.did["messages taken"] += len(messages)

    def reply(self) -> None:
        """Answer a message; now and then one that is answered already."""
        agent, memory = self.mind("inbox")
        request = pb.ReplyRequest(
            message_id=self.some(memory.inbox),
            text=self._text(),
            request_id=self._request_id(),
            caller_session_id=self._session(memory),
        )
        self._sends(agent, "replies", request, agent.messages.Reply, request.message_id[-6:])

    def finish(self) -> None:
        """Say that a message needs no answer."""
        agent, memory = self.mind("inbox")
        request = pb.DoneRequest(message_id=self.some(memory.inbox))
        self.call(agent.name, f"finishes {request.message_id[-6:]}", agent.messages.Done(request))

    def read_thread(self) -> None:
        """Read a thread: what is unread in it is taken."""
        agent, memory = self.mind("threads")
        request = pb.ListMessagesRequest(
            thread_id=self.some(memory.threads), caller_session_id=self._session(memory)
        )
        self.call(
            agent.name,
            "reads-thread",
            agent.messages.ListMessages(request),
            lambda a: self._read(agent, a.messages),
        )

    def _read(self, agent: Member, messages: Any) -> None:
        mine = [message for message in messages if agent.id in {party.id for party in message.to}]
        self._got(agent, mine)

    def look_around(self) -> None:
        """Read by one of the other doors."""
        agent, memory = self.mind()
        sessions: Any = agent.sessions
        door = self.rng.randrange(5)
        work: Any
        if door == 0:
            work = agent.messages.ListThreads(pb.ListThreadsRequest())
        elif door == 1:
            work = sessions.ReadSession(
                session_pb2.ReadSessionRequest(session_id=self.some(memory.sessions + memory.peer_sessions))
            )
        elif door == 2:
            work = sessions.ListSessions(session_pb2.ListSessionsRequest())
        elif door == 3:
            work = agent.turns.GetTurn(turns_pb.GetTurnRequest(turn_id=self.some(memory.asked)))
        else:
            work = sessions.GetContext(session_pb2.GetContextRequest(caller_session_id=self._session(memory)))
        self.call(agent.name, f"looks-around {door}", work)

    def cancel(self) -> None:
        """Cancel a turn that was asked for."""
        agent, memory = self.mind("asked")
        request = turns_pb.CancelRequest(turn_id=self.some(memory.asked))
        self.call(agent.name, f"cancels {request.turn_id[-6:]}", agent.turns.Cancel(request))

    def give_up(self) -> None:
        """Drop a call that is under way, as a lost connection does."""
        under_way = sorted(self.calls, key=lambda task: task.get_name())
        if under_way:
            task = self.rng.choice(under_way)
            self.story.tell(f"{self.calls[task]} drops {task.get_name()}")
            task.cancel()

    # -- what workers do ---------------------------------------------------------------------------

    def attach(self) -> None:
        """Connect a worker anew, or again with what it holds."""
        idle = [worker for worker in self.workers if not worker.open]
        if idle and (self.rng.random() < 0.7 or len(self.workers) > 5):
            worker = self.rng.choice(idle)
            self.story.tell(f"worker {worker.number} of {worker.agent.name} comes back")
        elif len(self.workers) <= 5:
            worker = Worker(self.one(), len(self.workers), self._started, self._answered)
            worker.on_tool_call = self._tool_called
            worker.max_turns = self.rng.randint(1, 3)
            self.workers.append(worker)
            self.story.tell(f"worker {worker.number} of {worker.agent.name} attaches")
        else:
            return
        worker.connect()

    def _started(self, worker: Worker, start: Start) -> None:
        key = (start.turn_id, start.attempt)
        self.story.did["turns given to workers"] += 1
        if key in self.given:
            self.broken.append(f"{start.turn_id} was given twice at attempt {start.attempt}")
        self.given.add(key)
        self.story.tell(f"    worker {worker.number} gets {start.turn_id[-6:]} at depth {start.depth}")
        memory = self.memories[worker.agent.id]
        memory.keep(memory.sessions, start.session_id)
        self._got(worker.agent, start.messages)

    def _answered(self, worker: Worker, result: Any) -> None:
        kind = result.WhichOneof("result")
        self.story.did[f"worker call {kind}"] += 1
        if kind == "error":
            self.story.refused[result.error.code] += 1
            if result.error.code == "internal":
                self.broken.append(f"a call of worker {worker.number} failed: {result.error.message}")
        elif kind == "call_tool":
            self._tool_seen(worker.agent, result.call_tool)
        elif kind in {"ask", "check"}:
            self._seen(worker.agent, getattr(result, kind).turn)
        elif kind == "take_inbox":
            self._got(worker.agent, result.take_inbox.messages, result.take_inbox.session_id)
        self.story.tell(f"    worker {worker.number}: {kind} {result.error.code}")

    def _busy(self) -> tuple[Worker, Start] | None:
        busy = [worker for worker in self.workers if worker.held and worker.attached]
        if not busy:
            self.attach()
            return None
        worker = self.rng.choice(busy)
        return worker, worker.held[self.rng.choice(sorted(worker.held))]

    def accept(self) -> None:
        """Say that a turn has arrived."""
        found = self._busy()
        if found:
            found[0].accept(found[1])

    def end_turn(self) -> None:
        """End a turn in one of the ways there are."""
        found = self._busy()
        if not found:
            return
        worker, start = found
        outcomes: list[dict[str, Any]] = [
            {"answer": self._text()},
            {"answer": self._text()},
            {"answer": ""},
            {"failure": "it broke"},
            {"canceled": True},
        ]
        outcome = self.rng.choice(outcomes)
        self.story.tell(f"worker {worker.number} ends {start.turn_id[-6:]}: {next(iter(outcome))}")
        worker.end(start, **outcome)

    def end_again(self) -> None:
        """Say once more that a turn ended which has ended before."""
        over = [worker for worker in self.workers if worker.ended and worker.attached]
        if over:
            worker = self.rng.choice(over)
            start = self.rng.choice(worker.ended)
            self.story.tell(f"worker {worker.number} ends {start.turn_id[-6:]} again")
            worker.end(start, answer="once more")

    def call_from_turn(self) -> None:
        """Have a worker call from within a turn, or from one that has ended."""
        found = self._busy()
        if not found:
            return
        worker, start = found
        memory = self.memories[worker.agent.id]
        if worker.ended and self.rng.random() < 0.15:
            start = self.rng.choice(worker.ended)  # what it has left behind goes on calling
        peer = self.peer(worker.agent)
        methods: list[tuple[str, Any]] = [
            ("send", pb.SendRequest(to=[peer.id], text=self._text())),
            (
                "ask",
                pb.AskRequest(agent=peer.id, text=self._text(), wait_seconds=self.rng.choice((0, 20, 50))),
            ),
            ("ask", pb.AskRequest(agent=peer.id, text=self._text(), wait_seconds=50)),
            ("check", pb.CheckRequest(turn_id=self.some(memory.asked), wait_seconds=20)),
            ("reply", pb.ReplyRequest(message_id=self.some(memory.inbox), text=self._text())),
            ("take_inbox", pb.TakeInboxRequest(limit=2)),
            ("ask_owner", owner_pb.AskOwnerRequest(question="from a turn", wait_seconds=20)),
            ("call_tool", self._tool_request(peer)),
        ]
        name, request = self.rng.choice(methods)
        turn = start.turn_id if self.rng.random() < 0.9 else ""
        if worker.tool_calls and self.rng.random() < 0.5:
            turn = worker.tool_calls[self.rng.choice(sorted(worker.tool_calls))].turn_id
        self.story.tell(f"worker {worker.number} calls {name} from {turn[-6:]} ({peer.name})")
        worker.call(turn, **{name: request})

    def cancel_worker_call(self) -> None:
        """Have a worker drop one of its calls."""
        open_ones = [worker for worker in self.workers if worker.attached and worker.calls]
        if open_ones:
            worker = self.rng.choice(open_ones)
            worker.cancel_call(self.rng.randint(max(1, worker.calls - 5), worker.calls))

    def lose_worker(self) -> None:
        """Break a worker's stream, or kill the worker."""
        standing = [worker for worker in self.workers if worker.open]
        if not standing:
            return
        worker = self.rng.choice(standing)
        if self.rng.random() < 0.5:
            self.story.tell(f"worker {worker.number} loses its stream")
            worker.hang_up()
        else:
            self.story.tell(f"worker {worker.number} is killed")
            worker.forget()

    # -- what people do ----------------------------------------------------------------------------

    def prompt(self) -> None:
        """Have a person prompt an agent, or write to some."""
        agent = self.one()
        person, memory = self.person, self.memories[self.person.id]
        if self.rng.random() < 0.3:
            request = pb.SendRequest(to=[agent.id], text=self._text())
            self.call("the person", f"writes to {agent.name}", person.messages.Send(request))
            return
        prompt = session_pb2.PromptRequest(
            agent=agent.id, text=self._text(), wait_seconds=self.rng.choice((0, 20))
        )
        prompt.own_endpoint = self.number % 2 == 0
        if memory.peer_sessions and self.rng.random() < 0.3:
            prompt.session_id = self.rng.choice(memory.peer_sessions)
        self.call(
            "the person",
            f"prompts {agent.name}",
            person.sessions.Prompt(prompt),
            lambda a: self._seen(person, a.turn),
        )

    def person_cancels(self) -> None:
        """Have a person cancel a turn that somebody asked for."""
        request = turns_pb.CancelRequest(turn_id=self.some(self.memories[self.one().id].asked))
        self.call("the person", f"cancels {request.turn_id[-6:]}", self.person.turns.Cancel(request))

    def look_at_dead(self) -> None:
        """Have a person look at what the mesh has given up."""
        memory = self.memories[self.person.id]

        def then(answer: Any) -> None:
            self.story.did["dead letters seen"] += len(answer.dead_letters)
            for letter in answer.dead_letters:
                memory.keep(memory.inbox, letter.turn_id)

        request = letters_pb.ListDeadLettersRequest(page_size=5)
        self.call("the person", "looks-at-dead letters", self.person.letters.ListDeadLetters(request), then)

    def act_on_dead(self) -> None:
        """Have a person send dead letters again, or strike them off; now and then what is dead no more."""
        memory = self.memories[self.person.id]
        if not memory.inbox:
            return self.look_at_dead()
        ids = sorted({self.some(memory.inbox), self.some(memory.inbox)})
        letters = self.person.letters
        if self.rng.random() < 0.7:
            work = letters.RetryDeadLetters(letters_pb.RetryDeadLettersRequest(turn_ids=ids))
            return self.call("the person", f"retries {len(ids)} dead letters", work)
        work = letters.PurgeDeadLetters(letters_pb.PurgeDeadLettersRequest(turn_ids=ids))
        return self.call("the person", f"purges {len(ids)} dead letters", work)

    def deposit(self) -> None:
        """Have a person pay in."""
        request = credit_pb2.DepositRequest(
            amount=self.rng.choice(("0.5", "3.000001", "50")), request_id=self._request_id()
        )
        self.call("the person", f"deposits {request.amount}", self.person.credits.Deposit(request))

    def extend_root(self) -> None:
        """Have a person extend the root of a turn that somebody asked for."""
        request = turns_pb.ExtendRootRequest(
            turn_id=self.some(self.memories[self.one().id].asked),
            turns=self.rng.choice((1, 3)),
            request_id=self._request_id(),
        )
        self.call(
            "the person", f"extends the root of {request.turn_id[-6:]}", self.person.turns.ExtendRoot(request)
        )

    def pause(self) -> None:
        """Pause an agent, or resume one."""
        agent = self.one()
        if self.rng.random() < 0.5:
            self.call("the person", f"pauses {agent.name}", self.world.pause(agent))
        else:
            self.resume(agent)

    def resume(self, agent: Member) -> None:
        """Resume an agent."""
        self.call("the person", f"resumes {agent.name}", self.world.resume(agent))

    def _text(self) -> str:
        self.number += 1
        return f"text {self.number}"
