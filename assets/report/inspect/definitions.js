/* SPDX-License-Identifier: Apache-2.0 */
/* How each number is defined, in the order in which they are met. */
const DEFINITIONS = [
    [
        "Windows",
        "Pieces of the text of equal length, one after the other, each read alone; a token in front " +
            "of every window where its tokenizer or its training puts one. Layers, heads, positions and channels " +
            "count from 0.",
    ],
    [
        "First-token share (F-Attn)",
        "Attention weight on position 0, averaged over windows, heads and queries, then layers. The " +
            "value to report leaves out the first query, which can see nothing else. Uniform attention " +
            "gives the mean of 1 / (q + 1).",
    ],
    [
        "Sink head, sink rate",
        "A head whose mean weight on position 0 over all queries of a window exceeds 0.3 (Gu et al.): " +
            "the rate is the share of (window, head) pairs, of the whole window or of its first 64 " +
            "tokens. Sink heads are counted by the mean over windows of the last three quarters of " +
            "queries.",
    ],
    ["Entropy", "−Σ p ln p of a query's weights in nats, or as a share of ln(q + 1), mean over queries from the second on."],
    ["Mean distance", "Mean of q − k under the weights."],
    [
        "Head kinds",
        "Mean weight on the query itself, on the token before, on earlier keys with the same token " +
            "(duplicate), on keys that follow such a key (induction); the last two over queries that have " +
            "such keys. A head is called by the first that fits: sink (share above 0.3), then the largest " +
            "of the other four above 0.3.",
    ],
    ["M-Act", "Largest |h| behind each layer, mean over layers (Qiu et al., table 4)."],
    [
        "Massive activation",
        "An element with |h| > 100 and |h| ≥ 1000 times the lower median of |h| over all tokens and " +
            "channels at that place (Sun et al.). Medians are exact.",
    ],
    [
        "Gate score",
        "What the gate multiplies by (or adds): one for each head, or for each channel. Quantiles are " +
            "exact to 1 % of their value.",
    ],
    [
        "Sparsity",
        "Share of |y| below 0.01 and 0.001 of the attention output y before the output projection. " +
            "Control: y before the gate times the layer's mean score.",
    ],
    [
        "Loss, perplexity",
        "Mean cross entropy in nats of every token but the first of each window, given the window before it; its exponential.",
    ],
    [
        "Interventions",
        "Gate = v: every score of every layer. Mean of its layer: the layer's mean score on these " +
            "windows. Its own mean: every score at its mean over tokens. Massive activations behind every " +
            "layer, by the medians of the unchanged model, become 0 or the mean of the massive elements " +
            "of their layer and channel. Window, first keys: every query sees the last n keys and the " +
            "first k; positions stay. Clipped: outputs of attention and MLP to ± x before they are added.",
    ],
    [
        "Rounding",
        "Symmetric to −127..127, scale = largest magnitude / 127 of the tensor, the row or the token; |x − int8(x)| / |x|.",
    ],
    [
        "Linear attention",
        "Decay: exp of the log decay of a head's state at each token. Write strength: beta of the " +
            "delta rule. Layers of linear attention have no attention weights, so no share, entropy or " +
            "head kind.",
    ],
    [
        "Learned sink",
        "Where a model has a learned sink logit (gpt-oss): its weight, mean over queries from the second on.",
    ],
    [
        "Routers",
        "Entropy of the softmax over experts as a share of ln E; load: share of the selections of a layer, times E.",
    ],
];

function definitionsSection() {
    return section(
        "definitions",
        "Definitions",
        null,
        el(
            "dl",
            {class: "definitions"},
            DEFINITIONS.map(([term, words]) => [el("dt", null, term), el("dd", null, words)]),
        ),
    );
}
