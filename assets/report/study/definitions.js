/* SPDX-License-Identifier: Apache-2.0 */
/* What the words of the page mean, in the order in which they are met. */
const DEFINITIONS = [
    [
        "Held-out loss, perplexity, bits per byte",
        "Mean cross entropy in nats per token of text that was kept out of training; its " +
            "exponential; the same loss in bits, per byte of text, so that tokenizers can be compared.",
    ],
    [
        "First-token share",
        "Mean attention weight on position 0, over heads, layers, held-out windows and queries. " +
            "The headline value uses queries from a quarter of the window on, because early queries " +
            "have few keys to choose from; “without query 1” leaves out the one that can see nothing " +
            "else.",
    ],
    [
        "Uniform share",
        "What the same average gives when every query spreads its attention evenly over the keys " +
            "it can see.",
    ],
    ["Sink head", "A head whose mean share on position 0 exceeds 0.3 (Gu et al.)."],
    ["M-Act", "Largest |h| of each layer's output, averaged over layers (Qiu et al., table 4)."],
    [
        "First-token peak",
        "Largest |h| of the residual stream at position 0, next to the largest at all other " +
            "positions and the median of all values.",
    ],
    [
        "Massive activation",
        "A value above 100 and above 1000 times the median |h| of its layer (Sun et al.). Small " +
            "models seldom have any.",
    ],
    [
        "Gate score",
        "The activation of the gate, multiplied on the attention output: one per head (headwise) " +
            "or per channel (elementwise). Below 0.1 counts as nearly closed.",
    ],
    [
        "Sparsity",
        "Share of values of the attention output with magnitude below 0.01 or 0.001: before the " +
            "gate, after it, and after multiplying by the layer's mean gate score only (control).",
    ],
    [
        "Loss spike",
        "A step whose loss exceeds the running average of the steps before it by more than the " +
            "threshold; neighbouring flagged points are one event. The spike score is the percentage " +
            "of points far (7 standard deviations) from the rolling average (OLMo 2).",
    ],
    [
        "Length",
        "Loss on windows of 1, 2 and 4 times the training length. Plain: positions go on as " +
            "trained. YaRN: rotary frequencies rescaled by the factor, no training.",
    ],
    [
        "FLOPs",
        "Counted from the shapes: two per multiply-add of the forward pass; training counts the " +
            "backward pass as twice the forward.",
    ],
];
