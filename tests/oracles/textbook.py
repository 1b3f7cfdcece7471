"""Slow textbook versions of what the product computes fast: recursion over OpenSpiel states, one history at a time.

Nothing here knows the product. A policy is a dict from (player, information-state string) to probabilities [A].
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pyspiel


@dataclass
class Node:
    """A history."""

    player: int  # 0, 1, -1 chance, -2 terminal
    payoff: float = 0.0
    key: tuple[int, str] = (-1, "")
    actions: list[int] = field(default_factory=list)
    law: list[float] = field(default_factory=list)
    children: list["Node"] = field(default_factory=list)
    number: int = -1  # breadth-first, all nodes
    decision: int = -1  # breadth-first, decision nodes


def game_tree(game):
    """(root, all nodes breadth first) of a turn-based OpenSpiel game."""
    root = Node(0)
    nodes, decisions = [], 0
    queue = deque([(game.new_initial_state(), root)])
    while queue:
        state, node = queue.popleft()
        node.number = len(nodes)
        nodes.append(node)
        if state.is_terminal():
            node.player, node.payoff = -2, state.returns()[0]
            continue
        if state.is_chance_node():
            node.player = -1
            outcomes = [(a, p) for a, p in state.chance_outcomes() if p > 0]
            node.actions, node.law = [a for a, _ in outcomes], [p for _, p in outcomes]
        else:
            node.player = state.current_player()
            node.key = (node.player, state.information_state_string(node.player))
            node.actions = state.legal_actions()
            node.decision, decisions = decisions, decisions + 1
        for action in node.actions:
            child = Node(0)
            node.children.append(child)
            queue.append((state.child(action), child))
    return root, nodes


def load(game_string):
    game = pyspiel.load_game(game_string)
    if game.get_type().dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS:
        game = pyspiel.convert_to_turn_based(game)
    return game


def history_values(root, policy, num_actions):
    """Player 0's Q(h, a) by number of decision node, [H, A], and the value of the game."""
    q = {}

    def walk(node):
        if node.player == -2:
            return node.payoff
        values = [walk(child) for child in node.children]
        if node.player == -1:
            return sum(p * v for p, v in zip(node.law, values, strict=True))
        row = np.zeros(num_actions)
        row[node.actions] = values
        q[node.decision] = row
        return float(policy[node.key] @ row)

    value = walk(root)
    return np.stack([q[k] for k in sorted(q)]), value


def regrets(root, policy, player, num_actions):
    """{I: (r(I, .) [A], pi_{-i}(I), pi_i(I))} of `player`: instantaneous counterfactual regrets of the policy."""
    found = {}

    def walk(node, own, others):
        """The value of `node` for `player`."""
        if node.player == -2:
            return node.payoff * (1 - 2 * player)
        if node.player == -1:
            return sum(p * walk(c, own, others * p) for p, c in zip(node.law, node.children, strict=True))
        sigma = policy[node.key]
        values = np.zeros(num_actions)
        for action, child in zip(node.actions, node.children, strict=True):
            if node.player == player:
                values[action] = walk(child, own * sigma[action], others)
            else:
                values[action] = walk(child, own, others * sigma[action])
        value = float(sigma @ values)
        if node.player == player:
            mask = np.zeros(num_actions)
            mask[node.actions] = 1.0
            r, reach, _ = found.get(node.key, (np.zeros(num_actions), 0.0, 0.0))
            found[node.key] = (r + others * mask * (values - value), reach + others, own)
        return value

    walk(root, 1.0, 1.0)
    return found


def matched(regret, actions):
    """Regret matching; the largest regret's action where none is positive, ties to the lowest id."""
    probabilities = np.zeros(len(regret))
    positive = {a: max(regret[a], 0.0) for a in actions}
    total = sum(positive.values())
    if total > 0:
        for a in actions:
            probabilities[a] = positive[a] / total
    else:
        probabilities[max(actions, key=lambda a: (regret[a], -a))] = 1.0
    return probabilities


class LinearCFR:
    """Linear CFR with alternating updates and the deep methods' regret matching, history by history.

    A state that the others have never reached keeps its first strategy, uniform: nothing is known there.
    """

    def __init__(self, game):
        self.root, nodes = game_tree(game)
        self.num_actions = game.num_distinct_actions()
        self.actions = {n.key: n.actions for n in nodes if n.player >= 0}
        self.sigma = {key: uniform(actions, self.num_actions) for key, actions in self.actions.items()}
        self.regret = {key: np.zeros(self.num_actions) for key in self.actions}
        self.reached = dict.fromkeys(self.actions, 0.0)
        self.sums = {key: np.zeros(self.num_actions) for key in self.actions}
        self.t = 0

    def iterate(self):
        self.t += 1
        for player in (0, 1):
            for key, (r, reach, own) in regrets(self.root, self.sigma, player, self.num_actions).items():
                self.sums[key] += self.t * own * self.sigma[key]
                self.regret[key] += self.t * r
                self.reached[key] += self.t * reach
            for key in [k for k in self.actions if k[0] == player and self.reached[k] > 0]:
                self.sigma[key] = matched(self.regret[key], self.actions[key])

    def average(self):
        rows = {}
        for key, sums in self.sums.items():
            total = sums.sum()
            rows[key] = sums / total if total > 0 else uniform(self.actions[key], self.num_actions)
        return rows


def uniform(actions, num_actions):
    row = np.zeros(num_actions)
    row[actions] = 1 / len(actions)
    return row


OUTCOME_FAULTS = ("baseline kept in the sampled value", "value under xi", "importance of the action forgotten")


def outcome_samples(root, policy, player, epsilon, q, n, rng, fault=None):
    """Outcome sampling with a baseline as the papers write it, n independent traversals walked node by node.

    Yields (key, r~ [m, A], pi_i^xi) for every traverser node visited by m traversals. q [H, A]: player 0's.
    """
    sign = 1 - 2 * player
    visits = []

    def walk(node, count, reach):
        """v~ [count] of the traversals at `node`."""
        if node.player == -2:
            return np.full(count, node.payoff * sign)
        if node.player == -1:
            law = xi = np.array(node.law)
        else:
            law = policy[node.key][node.actions]
            law = law / law.sum()
            mine = node.player == player
            xi = epsilon / len(law) + (1 - epsilon) * law if mine else law
        drawn = rng.choice(len(xi), size=count, p=xi)
        below = np.zeros(count)
        for k, child in enumerate(node.children):
            at = np.flatnonzero(drawn == k)
            if len(at):
                mine = node.player == player
                below[at] = walk(child, len(at), reach * xi[k] if mine else reach)
        if node.player == -1:
            return below
        estimate = np.tile(q[node.decision][node.actions] * sign, (count, 1))
        row = np.arange(count)
        surprise = below - (0.0 if fault == OUTCOME_FAULTS[0] else estimate[row, drawn])
        estimate[row, drawn] += surprise / (1.0 if fault == OUTCOME_FAULTS[2] else xi[drawn])
        value = estimate @ (xi if fault == OUTCOME_FAULTS[1] else law)
        if node.player == player:
            advantage = np.zeros((count, q.shape[1]))
            advantage[:, node.actions] = estimate - value[:, None]
            visits.append((node.key, advantage, reach))
        return value

    walk(root, n, 1.0)
    return visits
