"""
Which graph kernel distinguishes small worlds from random graphs?
=================================================================

Graphs have no columns, but there are kernels for them, and each captures a different
property: how many nodes there are of a kind, how far apart they are, what their
neighbourhoods look like. Here is one Gram matrix for each, from grakel if it is
installed (``pip install grakel``), and otherwise from a few lines of this example; the
first line that is printed says which. The learned weights show which property matters.

Half of the graphs are rings with some edges moved; the other half have the same number
of edges between random nodes. Nodes are labelled by their degree.
"""

from importlib.metadata import version
from importlib.util import find_spec

import matplotlib.pyplot as plt
import numpy as np
from scipy.sparse.csgraph import shortest_path

from mklearn import MKLClassifier

rng = np.random.default_rng(0)
N_NODES, N_GRAPHS = 16, 120


def graph(small_world):
    """Return the adjacency matrix of a graph with two edges for each node."""
    A = np.zeros((N_NODES, N_NODES), dtype=int)
    i = np.arange(N_NODES)
    for step in (1, 2):
        A[i, (i + step) % N_NODES] = 1
    A = np.triu(A + A.T)
    pairs = np.argwhere(np.triu(1 - A, 1))
    edges = np.argwhere(A)
    moved = len(edges) // 3 if small_world else len(edges)
    gone = edges[rng.choice(len(edges), moved, replace=False)]
    new = pairs[rng.choice(len(pairs), moved, replace=False)]
    A[tuple(gone.T)], A[tuple(new.T)] = 0, 1
    return A + A.T


labels = np.arange(N_GRAPHS) % 2
graphs = [graph(small) for small in labels == 1]
train, test = np.arange(0, 80), np.arange(80, N_GRAPHS)

# %%
# A Gram matrix between graphs for each kernel, ``(n, n_train)``:


def by_grakel():
    """Return the Grams of three kernels of grakel, each of unit diagonal."""
    from grakel import Graph
    from grakel.kernels import ShortestPath, VertexHistogram, WeisfeilerLehman

    given = [Graph(A.tolist(), dict(enumerate(A.sum(axis=0).tolist()))) for A in graphs]
    kernels = {
        "degrees": VertexHistogram(normalize=True),
        "distances": ShortestPath(normalize=True, with_labels=False),
        "neighbourhoods": WeisfeilerLehman(n_iter=2, normalize=True),
    }
    learned = [given[i] for i in train]
    found = {}
    for name, kernel in kernels.items():
        kernel.fit(learned)
        found[name] = np.asarray(kernel.transform(given))
    return found


def by_hand():
    """Return such Grams from counts: of degrees, of distances, of neighbourhoods."""
    described = {"degrees": [], "distances": [], "neighbourhoods": []}
    for A in graphs:
        degree = A.sum(axis=0)
        around = [f"{degree[i]}:{sorted(degree[A[i] > 0])}" for i in range(N_NODES)]
        steps = shortest_path(A, unweighted=True)[np.triu_indices(N_NODES, 1)]
        described["degrees"].append(degree.tolist())
        described["distances"].append(steps.tolist())
        described["neighbourhoods"].append(degree.tolist() + around)
    found = {}
    for name, things in described.items():
        known = sorted({str(thing) for one in things for thing in one})
        place = {thing: j for j, thing in enumerate(known)}
        counts = np.zeros((len(graphs), len(known)))
        for row, one in zip(counts, things, strict=True):
            np.add.at(row, [place[str(thing)] for thing in one], 1)
        counts /= np.linalg.norm(counts, axis=1, keepdims=True)
        found[name] = counts @ counts[train].T
    return found


if find_spec("grakel") is None:
    print("grakel is not installed: kernels are those of this example")
    grams = by_hand()
else:
    print(f"kernels are those of grakel {version('grakel')}")
    grams = by_grakel()

# %%
# The shape is (samples, training samples, kernels), as ``kernels="precomputed"``
# expects.

names = list(grams)
B = np.stack([grams[name] for name in names], axis=2)
model = MKLClassifier("precomputed", norm=1).fit(B[train], labels[train])
print(f"accuracy on {len(test)} new graphs: {model.score(B[test], labels[test]):.3f}")
for m, name in enumerate(names):
    one = MKLClassifier("precomputed").fit(B[train][:, :, [m]], labels[train])
    print(f"  {name} alone: {one.score(B[test][:, :, [m]], labels[test]):.3f}")

plt.barh(names, model.kernel_contributions_, color="#0072B2")
plt.xlabel("share in the decision")
plt.tight_layout()
plt.show()
