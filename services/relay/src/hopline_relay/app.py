"""The relay put together, and taken apart."""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Final

import grpc.aio
from hopline.relay.v1.audit_pb2_grpc import add_AuditServiceServicer_to_server
from hopline.relay.v1.dead_letter_pb2_grpc import add_DeadLetterServiceServicer_to_server
from hopline.relay.v1.delegation_pb2_grpc import add_DelegationServiceServicer_to_server
from hopline.relay.v1.draft_pb2_grpc import add_DraftServiceServicer_to_server
from hopline.relay.v1.escalation_pb2_grpc import add_EscalationServiceServicer_to_server
from hopline.relay.v1.exchange_pb2_grpc import add_ExchangeServiceServicer_to_server
from hopline.relay.v1.floor_pb2_grpc import add_FloorServiceServicer_to_server
from hopline.relay.v1.hook_state_pb2_grpc import add_HookStateServiceServicer_to_server
from hopline.relay.v1.message_pb2_grpc import add_MessageServiceServicer_to_server
from hopline.relay.v1.plugin_session_pb2_grpc import add_PluginSessionServiceServicer_to_server
from hopline.relay.v1.plugin_tool_pb2_grpc import add_PluginToolServiceServicer_to_server
from hopline.relay.v1.schedule_pb2_grpc import add_ScheduleServiceServicer_to_server
from hopline.relay.v1.session_pb2_grpc import add_SessionServiceServicer_to_server
from hopline.relay.v1.timer_pb2_grpc import add_TimerServiceServicer_to_server
from hopline.relay.v1.todo_pb2_grpc import add_TodoServiceServicer_to_server
from hopline.relay.v1.tool_pb2_grpc import add_ToolServiceServicer_to_server
from hopline.relay.v1.wake_pb2_grpc import add_WakeServiceServicer_to_server
from hopline.relay.v1.webhook_pb2_grpc import add_WebhookServiceServicer_to_server
from hopline.runtime.v1.tunnel_pb2_grpc import add_TunnelServiceServicer_to_server
from hopline_directory import Guard
from hopline_rpc.channels import dial
from hopline_rpc.ids import IdMaker
from hopline_rpc.metrics import Family
from hopline_rpc.paging import Pager
from hopline_rpc.service import Wiring
from hopline_rpc.serving import Server
from hopline_store import Database, open_database, private_file
from hopline_store.secret import shared_secret

from hopline_relay import recovery
from hopline_relay.admission import Admission
from hopline_relay.arrivals import Arrivals
from hopline_relay.asks import Asks
from hopline_relay.at_once import AtOnce
from hopline_relay.audit import Audit
from hopline_relay.callers import Inboxes
from hopline_relay.cancel import Cancels
from hopline_relay.claims import Claims
from hopline_relay.closing import Closings
from hopline_relay.dead_letters import DeadLetters
from hopline_relay.delegations import Delegations
from hopline_relay.dispatch import Dispatcher
from hopline_relay.endings import Endings
from hopline_relay.escalation_ends import EscalationEnds
from hopline_relay.exchanges import Exchanges, Indexer
from hopline_relay.firings import Firings
from hopline_relay.floor import Floor
from hopline_relay.handover import HandOver
from hopline_relay.held_answers import HeldAnswers
from hopline_relay.hold_ends import HoldEnds
from hopline_relay.hold_views import HoldViews
from hopline_relay.holding import Holding
from hopline_relay.hooks.handing import Handing, ask_plugin
from hopline_relay.hooks.left import LeftHooks
from hopline_relay.hooks.messages import MessageHooks
from hopline_relay.hooks.noting import HookNotices, Notes
from hopline_relay.hooks.prompts import PromptHooks
from hopline_relay.hooks.runner import Hooks
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.left import Seats
from hopline_relay.left_wakes import Left
from hopline_relay.measuring import Measuring
from hopline_relay.mesh_wakes import MeshWakes
from hopline_relay.neighbours import Neighbours
from hopline_relay.outbox import Outbox
from hopline_relay.outputs import Outputs
from hopline_relay.owner_notices import (
    Addresses,
    EscalationNotices,
    RootNotices,
    TodosAsleepNotices,
    WakeFailedNotices,
)
from hopline_relay.owners import Owners
from hopline_relay.plugins.acting import Acting
from hopline_relay.plugins.calling import PluginCalls
from hopline_relay.plugins.chats import Chats
from hopline_relay.plugins.commands import Commands
from hopline_relay.plugins.contributed import Contributed
from hopline_relay.plugins.events import PluginEvents
from hopline_relay.plugins.grants import Grants
from hopline_relay.plugins.installations import Installations
from hopline_relay.plugins.leaving import Leaving
from hopline_relay.plugins.secrets import Secrets
from hopline_relay.plugins.uninstalled import Uninstalled
from hopline_relay.posting import HttpPoster
from hopline_relay.probe import SelfProbe
from hopline_relay.questions import Questions
from hopline_relay.refusals import Refusals
from hopline_relay.replies import Replies
from hopline_relay.retention import Retention
from hopline_relay.roots import Roots
from hopline_relay.schedules import Schedules
from hopline_relay.sealing import Sealer
from hopline_relay.sends import Sends
from hopline_relay.servicers.audit import AuditServicer
from hopline_relay.servicers.dead_letters import DeadLetterServicer
from hopline_relay.servicers.delegations import DelegationHandlers, DelegationServicer
from hopline_relay.servicers.drafts import DraftServicer
from hopline_relay.servicers.escalations import EscalationServicer
from hopline_relay.servicers.exchanges import ExchangeServicer
from hopline_relay.servicers.floor import FloorServicer
from hopline_relay.servicers.hook_states import HookStateServicer
from hopline_relay.servicers.messages import MessageHandlers, MessageServicer
from hopline_relay.servicers.plugin_sessions import PluginSessionServicer
from hopline_relay.servicers.plugin_tools import PluginToolServicer
from hopline_relay.servicers.schedules import ScheduleServicer
from hopline_relay.servicers.sessions import SessionServicer
from hopline_relay.servicers.todos import TimerServicer, TodoServicer
from hopline_relay.servicers.tools import ToolServicer
from hopline_relay.servicers.wakes import WakeServicer
from hopline_relay.servicers.webhooks import WebhookServicer
from hopline_relay.sessions import Sessions
from hopline_relay.settings import DATABASE_FILE, RelaySettings
from hopline_relay.siblings import Siblings, reachable
from hopline_relay.signals import Signals
from hopline_relay.slots import Slots
from hopline_relay.starts import Starts
from hopline_relay.store import outbox as outbox_rows
from hopline_relay.store.schema import secrets as shared_secrets
from hopline_relay.subagents import Subagents
from hopline_relay.sweep import Sweep
from hopline_relay.takeover import TakeOver
from hopline_relay.taking import Taking
from hopline_relay.threads import Threads
from hopline_relay.timers import Timers
from hopline_relay.to_human import ToHuman
from hopline_relay.todos import Todos
from hopline_relay.tool_offers import ToolOffers
from hopline_relay.tool_runs import ToolRuns
from hopline_relay.tools import Tools
from hopline_relay.tunnel import TunnelServicer
from hopline_relay.tunnel_stream import Tunnels
from hopline_relay.turns import Turns
from hopline_relay.verifying import Verifying
from hopline_relay.view import Views
from hopline_relay.waits import Waits
from hopline_relay.wakes import Wakes
from hopline_relay.webhooks import Webhooks
from hopline_relay.work import Work

# How long workers get to attach elsewhere when the relay goes.
_DRAIN_SECONDS: Final = 2.0


class RelayService:
    """How the relay is found and opened."""

    name = "relay"
    default_port = 7402

    async def open(self, wiring: Wiring) -> Relay:
        """Open the database, follow the registry, rebuild the counters; opens no port."""
        settings = RelaySettings.load(wiring.settings)
        relay = Relay(wiring, settings, _open_store(wiring, settings))
        try:
            await relay.start()
        except BaseException:
            await relay.close()
            raise
        return relay


SERVICE: Final = RelayService()


class Relay:
    """The running relay."""

    name = "relay"

    def __init__(self, wiring: Wiring, settings: RelaySettings, database: Database) -> None:
        clock, ids = wiring.clock, wiring.ids
        self._clock = clock
        self._embedded = wiring.embedded
        self._database = database
        self._started = False
        self._closed = False

        registry = wiring.channel("registry")
        self._guard = Guard(registry, settings.mesh_id, clock)
        self.directory = directory = self._guard.directory
        # Where services run as processes of their own, others may share a record that is on a server.
        shared = bool(settings.database_url) and not wiring.embedded
        self.journal = journal = Journal(database, clock, ids.new_id("ins"), shared=shared)
        self.signals = signals = Signals()
        self.grants = Grants(journal, directory, clock)
        self.admission = admission = Admission(wiring.channel("quota"), journal, directory, clock)
        self.waits = waits = Waits(journal)
        self._hand_over = hand_over = HandOver(journal, directory, signals, ids, clock)
        self.refusals = Refusals(journal, directory, clock)
        self._escalations = escalations = EscalationEnds(
            journal, directory, waits, hand_over, signals, ids, clock, settings.escalation_seconds
        )
        self.hooks = Hooks(directory, directory.plugins, Handing(directory, self.grants), clock)
        self._message_hooks = said = MessageHooks(self.hooks, directory, ids)
        self.endings = endings = Endings(
            journal, directory, admission, waits, hand_over, escalations, signals, said, ids, clock
        )
        self.mesh_wakes = MeshWakes(journal, directory, admission, signals, ids, clock)
        inboxes = Inboxes(ids)
        self._cancels = cancels = Cancels(journal, endings, escalations)
        claims = Claims(journal, directory, admission, endings, signals, clock)
        self.turns = turns = Turns(journal, directory, admission, endings, cancels, claims, signals, clock)
        self.dispatcher = dispatcher = Dispatcher(turns, directory, clock)
        self._hook_notes = notes = Notes(journal, directory, ids)
        self.hooks.on_changed = notes.changed
        dispatcher.prompts = PromptHooks(self.hooks, directory, notes, ids, clock)
        self._measuring = Measuring(journal, dispatcher, waits, clock)
        self.inbox = inbox = Inbox(journal, directory, admission, endings, claims, signals, inboxes, clock)
        slots, views = Slots(admission, signals, clock), Views(directory)
        pager = Pager(shared_secret(database, shared_secrets, "pages"))
        self._tool_runs = runs = ToolRuns(journal, dispatcher, endings, cancels, waits, views, clock)
        signals.on_slot_free = runs.queue.slot_free
        offers = ToolOffers(directory, runs, pager)
        self._siblings = Siblings(journal, dispatcher, turns, waits, inbox, signals, ids, clock)
        self._siblings.on_gone, self._siblings.on_beat = self._take_over, self.grants.catch_up
        self._neighbours = Neighbours(
            journal,
            directory,
            self._siblings,
            runs,
            partial(dial, tls=settings.tls, insecure=settings.insecure),
        )
        self._sends = sends = self._open_sends(claims, inboxes, offers, ids)
        self.authenticator = self._guard.authenticator
        waits.on_over, waits.on_missed = slots.over, hand_over.back
        self._taking = taking = Taking(journal, endings, hand_over)
        hold_views = HoldViews(journal, views, clock)
        asks = Asks(
            journal, directory, sends, waits, hand_over, taking, slots, inboxes, views, hold_views, ids, clock
        )
        hold_ends = HoldEnds(journal, directory, admission, waits, ids)
        self.holding = holding = Holding(journal, directory, hold_ends, self.mesh_wakes, clock)
        endings.on_held, cancels.on_canceled = holding.look, holding.canceled
        signals.on_todos_changed(holding.look)
        signals.on_todos_changed(holding.look)
        self.outbox = outbox = self._open_outbox(registry, settings)
        self._open_plugins(registry, settings, ids)
        self.wakes = self._open_wakes(registry, ids)
        questions = Questions(
            journal, directory, waits, hand_over, taking, slots, inboxes, views, outbox, settings, ids, clock
        )
        letters = DeadLetters(journal, directory, signals, views, pager, ids, clock)
        self.sweep = Sweep(
            journal, directory, admission, endings, cancels, letters, turns, escalations, signals, clock
        )
        self._probe = SelfProbe(journal, admission, self._still, clock)
        self._departures = recovery.Departures(
            journal, directory, sends, endings, cancels, escalations, turns, holding, signals
        )
        self.firings = Firings(journal, directory, sends, clock)
        self.uninstalled = Uninstalled(journal, directory, clock)
        self._takeover = TakeOver(registry, journal, clock)
        self.sealer = Sealer(journal, clock)
        self.indexer = Indexer(journal, clock)
        self.retention = Retention(journal, directory, clock)

        self._tools = tools = Tools(journal, sends, asks, waits, slots, cancels, runs, views, ids, clock)
        self._subagents = subagents = Subagents(journal, directory, sends, inbox, views)
        self._closings = Closings(journal, directory, cancels, inbox)
        delegation = DelegationHandlers(subagents, self._closings)
        to_human = ToHuman(journal, directory, sends, endings, inboxes, hold_views)
        self.left = Left(journal, directory, self.mesh_wakes, signals, ids, clock)
        self.left.notify(outbox.wake)
        cancels.on_ended = self.left.turns_canceled
        todos, timers = self._open_left(inboxes, views, pager, ids)
        self.handlers = MessageHandlers(
            sends,
            asks,
            questions,
            inbox,
            tools,
            offers,
            delegation,
            to_human,
            todos,
            timers,
            views,
            self.grants,
            self._neighbours,
        )
        self.server = self._open_server(settings, ids)
        self._siblings.address_source = lambda: settings.relay_address or reachable(self.server.address)
        self._outputs = Outputs(journal, clock, partial(said.concern, kind="answer"))
        self._tunnels = self._open_tunnels(ids)
        self._add_servicers(asks, cancels, letters, views, pager, ids)
        self._add_sources(asks, views, pager, ids)
        self._add_plugins(ids)
        answers = HeldAnswers(journal, directory, hold_ends, asks, hold_views, pager)
        self.server.add(add_DraftServiceServicer_to_server, DraftServicer(self.handlers, answers))
        self._guard.protect(self.server.live)
        self._guard.follower.add_listener(self.hooks.changed)
        self._guard.follower.add_listener(self._departures.changed)
        self._guard.follower.add_listener(self.firings.changed)
        self._guard.follower.add_listener(self.wakes.changed)
        self._guard.follower.add_listener(self.uninstalled.changed)
        self._guard.follower.add_listener(self._installations.changed)
        self._guard.follower.add_listener(self.left.changed)

    def _open_sends(self, claims: Claims, inboxes: Inboxes, offers: ToolOffers, ids: IdMaker) -> Sends:
        directory, waits = self.directory, self.waits

        def instance() -> str:
            return self.journal.instance_id

        at_once = AtOnce(
            claims,
            directory,
            self.admission,
            self.signals,
            self.dispatcher,
            self.inbox,
            self._tool_runs,
            instance,
        )
        return Sends(
            self.journal,
            directory,
            self.admission,
            waits,
            self._hand_over,
            self.signals,
            self.refusals,
            Starts(directory, waits, inboxes, ids, instance, self.turns.places, offers.check),
            Replies(directory, waits, inboxes, ids, instance),
            inboxes,
            at_once,
            self._message_hooks,
            ids,
            self._clock,
        )

    def _open_outbox(self, registry: grpc.aio.Channel, settings: RelaySettings) -> Outbox:
        private = settings.webhook_private
        poster = HttpPoster(loopback=self._embedded or private, private=private)
        outbox = Outbox(self.journal, poster, self._clock, random.random)
        self._escalations.on_notice = outbox.wake
        addresses = Addresses(self.directory, registry)
        outbox.add_kind(outbox_rows.ESCALATION, EscalationNotices(self.journal, addresses))
        outbox.add_kind(outbox_rows.ROOT, RootNotices(self.journal, addresses))
        outbox.add_kind(outbox_rows.WAKE_FAILED, WakeFailedNotices(self.journal, addresses))
        outbox.add_kind(outbox_rows.HOOK, HookNotices(self.journal, addresses, self.hooks))
        self._hook_notes.on_notice = outbox.wake
        outbox.add_kind(outbox_rows.TODOS_ASLEEP, TodosAsleepNotices(self.journal, addresses))
        return outbox

    def _open_left(self, inboxes: Inboxes, views: Views, pager: Pager, ids: IdMaker) -> tuple[Todos, Timers]:
        journal, directory, left = self.journal, self.directory, self.left
        seats = Seats(journal, directory, self.inbox, inboxes)
        hooks = left.timers.hooks = LeftHooks(self.hooks, directory, self._hook_notes, ids)
        todos = Todos(
            journal,
            directory,
            seats,
            self.signals,
            views,
            pager,
            ids,
            self._clock,
            hooks,
            left.todos.looking.wake,
        )
        return todos, Timers(journal, directory, seats, views, pager, ids, hooks, left.timers.looking.wake)

    def _open_plugins(self, registry: grpc.aio.Channel, settings: RelaySettings, ids: IdMaker) -> None:
        private = settings.webhook_private
        self.plugin_calls = calls = PluginCalls(
            Secrets(registry),
            self._clock,
            loopback=self._embedded or private,
            private=private,
            tls=settings.tls,
        )
        journal, directory, grants = self.journal, self.directory, self.grants
        self.plugin_events = events = PluginEvents(
            journal, directory, calls, grants, self._clock, random.random
        )
        self._sends.on_plugin_event = events.wake
        self.hooks.call = partial(ask_plugin, calls)
        self._installations = Installations(journal, directory, calls, grants, ids, events.wake)

    def _open_wakes(self, registry: grpc.aio.Channel, ids: IdMaker) -> Wakes:
        dispatcher, turns = self.dispatcher, self.turns

        def is_awake(workspace_id: str, agent_id: str) -> bool:
            return turns.presence_source(workspace_id, agent_id) is not None

        wakes = Wakes(
            self.journal, self.directory, registry, self.outbox, is_awake, self.signals, ids, self._clock
        )
        self.outbox.add_kind(outbox_rows.WAKING, wakes)
        dispatcher.on_attached(wakes.attached)
        return wakes

    def _open_server(self, settings: RelaySettings, ids: IdMaker) -> Server:
        return Server(
            self.name,
            authenticator=self._guard.authenticator,
            clock=self._clock,
            ids=ids,
            ready=self.ready,
            tls=settings.tls,
            insecure=settings.insecure,
            refused=self.refusals.note_call,
        )

    def _open_tunnels(self, ids: IdMaker) -> TunnelServicer:
        tunnels = Tunnels(
            dispatcher=self.dispatcher,
            turns=self.turns,
            tools=self._tool_runs,
            handlers=self.handlers,
            outputs=self._outputs,
            authenticator=self._guard.authenticator,
            directory=self.directory,
            ensure_fresh=self._guard.follower.ensure_fresh,
            clock=self._clock,
            ids=ids,
            refused=self.refusals.note_call,
        )
        return TunnelServicer(tunnels)

    def _add_servicers(
        self,
        asks: Asks,
        cancels: Cancels,
        letters: DeadLetters,
        views: Views,
        pager: Pager,
        ids: IdMaker,
    ) -> None:
        journal, directory, inbox, server = self.journal, self.directory, self.inbox, self.server
        server.add(
            add_MessageServiceServicer_to_server,
            MessageServicer(self.handlers, Threads(journal, directory, inbox, views, pager, self._clock)),
        )
        hold_views = HoldViews(journal, views, self._clock)
        self._sessions = sessions = Sessions(
            journal, directory, inbox, self.turns, self.refusals, views, hold_views, pager, self._clock
        )
        server.add(add_SessionServiceServicer_to_server, SessionServicer(sessions, asks, Commands(directory)))
        roots = Roots(journal, directory, self.admission, self.outbox, views, pager, ids)
        self.refusals.on_exhausted = roots.exhausted
        self.mesh_wakes.on_exhausted = roots.exhausted
        floor = Floor(
            journal,
            directory,
            self.hooks,
            views,
            pager,
            self._clock,
            self.turns.places,
            sessions.presence_of,
        )
        server.add(add_FloorServiceServicer_to_server, FloorServicer(floor))
        exchanges = Exchanges(journal, directory, self.indexer, views, pager)
        server.add(add_ExchangeServiceServicer_to_server, ExchangeServicer(exchanges))
        delegations = Delegations(journal, directory, cancels, inbox, views, pager)
        server.add(
            add_DelegationServiceServicer_to_server,
            DelegationServicer(self.handlers.delegation, delegations, roots),
        )
        owners = Owners(journal, directory, self._escalations, views, pager)
        server.add(add_EscalationServiceServicer_to_server, EscalationServicer(self.handlers, owners))
        server.add(add_TodoServiceServicer_to_server, TodoServicer(self.handlers.todos))
        server.add(add_TimerServiceServicer_to_server, TimerServicer(self.handlers.timers))
        server.add(add_ToolServiceServicer_to_server, ToolServicer(self.handlers))
        server.add(add_DeadLetterServiceServicer_to_server, DeadLetterServicer(letters))
        verifying = Verifying(journal, directory, self.sealer)
        audit = Audit(journal, directory, pager)
        server.add(add_AuditServiceServicer_to_server, AuditServicer(audit, verifying))
        server.add(add_TunnelServiceServicer_to_server, self._tunnels)
        work = Work(journal, directory, self.dispatcher, self.signals, self._clock)
        self.dispatcher.on_attached(work.attached)
        server.add(add_WakeServiceServicer_to_server, WakeServicer(work))

    def _add_sources(self, asks: Asks, views: Views, pager: Pager, ids: IdMaker) -> None:
        journal, directory, clock = self.journal, self.directory, self._clock
        schedules = Schedules(journal, directory, views, pager, ids, clock, self.firings.wake)
        self.server.add(add_ScheduleServiceServicer_to_server, ScheduleServicer(schedules))
        webhooks = Webhooks(journal, directory, views, pager, ids, clock, _webhook_secret)
        arrivals = Arrivals(journal, directory, asks, clock)
        self.server.add(add_WebhookServiceServicer_to_server, WebhookServicer(webhooks, arrivals))
        states = HookStateServicer(self.hooks, directory, clock)
        self.server.add(add_HookStateServiceServicer_to_server, states)

    def _add_plugins(self, ids: IdMaker) -> None:
        contributed = Contributed(
            self.journal, self.directory, self.inbox, self.plugin_calls, self.grants, ids, self._clock
        )
        self.server.add(add_PluginToolServiceServicer_to_server, PluginToolServicer(contributed))
        acting = Acting(self.journal, self.directory, self.grants, self.refusals)
        chats = Chats(acting, self._subagents, self._sessions, self._sends)
        leaving = Leaving(acting, self.handlers.todos, self.handlers.timers)
        self.server.add(add_PluginSessionServiceServicer_to_server, PluginSessionServicer(chats, leaving))

    async def start(self) -> None:
        """Take over what an earlier process has left, then begin to work."""
        await self._guard.start()
        self.hooks.look([each.id for each in self.directory.workspaces()])
        await recovery.begin(self.journal, self.inbox, self.directory)
        self._siblings.start()
        await self._hand_over.recover()
        await self.grants.recover()
        await self.admission.start()
        await self._tool_runs.recover()
        workspaces = [each.id for each in self.directory.workspaces()]
        await self._cancels.resume(workspaces)
        await self._closings.resume(workspaces)
        await self._departures.catch_up()
        await self._escalations.catch_up()
        await self.holding.catch_up()
        await self.firings.catch_up()
        await self.left.catch_up()
        await self._installations.catch_up()
        self._started = True
        self._takeover.start()
        self.sealer.start()
        self.indexer.start()
        self.retention.start()
        self.uninstalled.start()
        self.dispatcher.start()
        self.sweep.start()
        self.holding.start()
        self.firings.start()
        self.left.start()
        self.outbox.start()
        self.plugin_events.start()
        await self.wakes.start()

    async def _take_over(self, died: bool) -> None:
        """Do what another relay has left, which is no more."""
        await recovery.take_over(self.journal, self.inbox, self.directory)
        await self._hand_over.recover()
        await self._tool_runs.recover()
        if died:
            # What it had charged and not written is in nobody's hands.
            await self.admission.reseed()
        workspaces = [each.id for each in self.directory.workspaces()]
        await self._cancels.resume(workspaces)
        await self._closings.resume(workspaces)
        await self.holding.catch_up()
        self.signals.try_again()

    async def ready(self) -> bool:
        """Tell whether a message would get through."""
        return not await self.missing()

    async def missing(self) -> list[str]:
        """Return what keeps messages from getting through, in words."""
        if not self._started:
            return ["it is starting"]
        found = [] if self._guard.follower.fresh else ["the registry is not heard of"]
        if not await self._database.ready():
            found.append("its store does not answer")
        if not found and (problem := await self._probe.problem()):
            found.append(problem)
        return found

    def _still(self) -> str:
        if not self.dispatcher.is_alive():
            return "no turns are handed out any more"
        return "" if self.sweep.is_alive() else "leases and limits are not watched any more"

    async def measure(self) -> Sequence[Family]:
        """Return what there is to measure."""
        return await self._measuring.families()

    async def drain(self) -> None:
        """Hand out nothing more, let the workers go elsewhere, and finish what runs."""
        await self._tunnels.drain(0.0 if self._embedded else _DRAIN_SECONDS)
        if self._embedded:
            await self.server.drain(probe_seconds=0.0)  # nobody probes a part of one process
        else:
            await self.server.drain()

    async def close(self) -> None:
        """Close everything, once what is under way has been written."""
        if self._closed:
            return
        self._closed = True
        await self.server.stop()
        if self._started:
            await self._siblings.close()
            await self.firings.close()
            await self.left.close()
            await self.sweep.close()
            await self.holding.close()
            await self.wakes.close()
            await self.plugin_events.close()
            await self.outbox.close()
            await self._takeover.close()
            await self.retention.close()
            await self.uninstalled.close()
            await self.sealer.close()
            await self.indexer.close()
            await self.dispatcher.close()
            for part in (
                self.holding,
                self.mesh_wakes,
                self._sends,
                self._tools,
                self._closings,
                self._cancels,
                self.turns,
                self._taking,
                self._hand_over,
                self.inbox,
                self.refusals,
            ):
                await part.drained()
            await self._outputs.flush()
            await self.admission.close()
            await recovery.end(self.journal)
        await self.plugin_calls.close()
        await self._neighbours.close()
        await self._guard.close()
        await self._database.close()


def _webhook_secret() -> str:
    return f"whs_{secrets.token_urlsafe(32)}"


def _open_store(wiring: Wiring, settings: RelaySettings) -> Database:
    """Open the database; of SQLite, a file and a folder for their owner alone."""
    scripts = "hopline_relay.migrations"
    if settings.database_url:
        return open_database(settings.database_url, migrations=scripts, name="relay", alone=wiring.embedded)
    file = private_file(wiring.data_dir or settings.data.expanduser(), DATABASE_FILE)
    return open_database(file, migrations=scripts, name="relay")
