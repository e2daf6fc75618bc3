/* SPDX-License-Identifier: Apache-2.0 */
/* What the models write, and everything that is needed to repeat the study. */

function samplesSection(study) {
    const seeds = seedOptions(study), box = el("div");
    let seed = seeds.length ? seeds[0].value : null;
    const fill = () => box.replaceChildren(...sampleBlocks(study, seed));
    fill();
    const choice = seeds.length > 1 ? el("label", {class: "control"}, "Seed ", el("select", {onchange: (event) => { seed = seeds[event.target.selectedIndex].value; fill(); }}, seeds.map((s) => el("option", null, s.label)))) : null;
    return section("samples", "Samples", "Text written by each model after the same prompts, as drawn; models of this size write nonsense that looks like the training text.", choice ? el("div", {class: "controls"}, choice) : null, box);
}

function sampleBlocks(study, seed) {
    const runs = study.arms.map((arm) => ({arm, run: arm.runs.find((r) => r.seed === seed) || arm.runs[0]}));
    const prompts = [...new Set(runs.flatMap(({run}) => (run ? list(run.raw, "samples").map((s) => text(s, "prompt") || "") : [])))];
    if (!prompts.length) return [el("p", {class: "empty"}, "Nothing to show: " + whyNoRuns(study, "samples") + ".")];
    return prompts.map((prompt) => el("div", {class: "prompt"}, el("h3", null, "After ", el("q", null, el("bdi", null, plain(prompt, 200)))),
        el("div", {class: "samples"}, runs.map(({arm, run}) => sampleCard(arm, run, prompt)))));
}

function sampleCard(arm, run, prompt) {
    const sample = run && list(run.raw, "samples").find((s) => (text(s, "prompt") || "") === prompt);
    const how = sample ? [number(sample, "temperature") !== null ? "temperature " + sample.temperature : null, number(sample, "seed") !== null ? "sampling seed " + sample.seed : null].filter(Boolean).join(", ") : null;
    return el("article", {class: "sample"}, el("h4", null, swatch({style: arm.style}), el("bdi", null, plain(arm.name, 48))),
        sample ? el("p", {class: "written", tabindex: "0"}, el("bdi", null, el("b", null, prompt), typeof sample.text === "string" ? sample.text : "")) : el("p", {class: "empty"}, run && !run.ok ? "No sample: the run " + run.status + "." : "No sample."),
        how ? el("p", {class: "unit"}, how) : null);
}

const DEFINITIONS = [
    ["Held-out loss, perplexity, bits per byte", "Mean cross entropy in nats per token of text that was kept out of training; its exponential; the same loss in bits, per byte of text, so that tokenizers can be compared."],
    ["First-token share", "Mean attention weight on position 0, over heads, layers, held-out windows and queries. The headline value uses queries from a quarter of the window on, because early queries have few keys to choose from; “without query 1” leaves out the one that can see nothing else."],
    ["Uniform share", "What the same average gives when every query spreads its attention evenly over the keys it can see."],
    ["Sink head", "A head whose mean share on position 0 exceeds 0.3 (Gu et al.)."],
    ["M-Act", "Largest |h| of each layer's output, averaged over layers (Qiu et al., table 4)."],
    ["First-token peak", "Largest |h| of the residual stream at position 0, next to the largest at all other positions and the median of all values."],
    ["Massive activation", "A value above 100 and above 1000 times the median |h| of its layer (Sun et al.). Small models seldom have any."],
    ["Gate score", "The activation of the gate, multiplied on the attention output: one per head (headwise) or per channel (elementwise). Below 0.1 counts as nearly closed."],
    ["Sparsity", "Share of values of the attention output with magnitude below 0.01 or 0.001: before the gate, after it, and after multiplying by the layer's mean gate score only (control)."],
    ["Loss spike", "A step whose loss exceeds the running average of the steps before it by more than the threshold; neighbouring flagged points are one event. The spike score is the percentage of points far (7 standard deviations) from the rolling average (OLMo 2)."],
    ["Length", "Loss on windows of 1, 2 and 4 times the training length. Plain: positions go on as trained. YaRN: rotary frequencies rescaled by the factor, no training."],
    ["FLOPs", "Counted from the shapes: two per multiply-add of the forward pass; training counts the backward pass as twice the forward."],
];
