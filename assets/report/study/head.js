/* SPDX-License-Identifier: Apache-2.0 */
/* The head of the page: what was run, what was seen, and the arms at a glance. The verdicts are those of
 * results.json; this file judges nothing. */
const VERDICTS = new Map([
    ["observed", ["seen", "✓ observed"]],
    ["not observed", ["unseen", "– not observed"]],
    ["mixed", ["mixed", "≈ mixed"]],
]);

function headSection(study) {
    const raw = study.raw;
    const when = text(raw, "created");
    const facts = [
        ["Recipe", text(raw, "recipe", "name")],
        [
            "Date",
            when
                ? plain(when, 40)
                      .replace("T", " ")
                      .replace(/:\d\dZ$/, " UTC")
                : null,
        ],
        ["Time", isNumber(raw.seconds) ? seconds(raw.seconds) : null],
        [
            "Machine",
            [
                text(raw, "machine", "cpu"),
                number(raw, "machine", "threads") !== null
                    ? number(raw, "machine", "threads") + (number(raw, "machine", "threads") === 1 ? " thread" : " threads")
                    : null,
            ]
                .filter(Boolean)
                .map((t) => plain(t, 80))
                .join(", "),
        ],
        ["Text", text(raw, "data", "source")],
        ["Arms", study.arms.length + " × " + (largest(study.arms.map((a) => a.runs.length)) || 0) + " seeds"],
    ];
    return el(
        "header",
        {class: "top"},
        el("p", {class: "kicker"}, "Sluice study"),
        el("h1", null, el("bdi", null, plain(text(raw, "title") || "Study report", 160))),
        el(
            "dl",
            {class: "facts"},
            facts
                .filter(([, value]) => value)
                .map(([key, value]) =>
                    el("div", null, el("dt", null, key), el("dd", null, el("bdi", null, plain(value, 90)))),
                ),
        ),
    );
}

function findingsSection(study) {
    const cards = list(study.raw, "findings")
        .filter((f) => text(f, "text"))
        .map(findingCard);
    return section(
        "findings",
        "What was seen",
        null,
        cards.length
            ? el("ol", {class: "findings"}, cards)
            : el("p", {class: "empty"}, "The results hold no findings."),
        overviewFigure(study),
    );
}

/* With many arms a finding names each of them; past this many letters it opens on request (and on paper). */
const LONG_FINDING = 560;

function findingCard(f) {
    const verdict = text(f, "verdict") || "";
    const [kind, label] = VERDICTS.get(verdict) || ["unseen", plain(verdict, 24)];
    const words = el("p", null, el("bdi", null, plain(text(f, "text"))));
    const long = text(f, "text").length > LONG_FINDING;
    const more = el(
        "button",
        {
            type: "button",
            class: "tool",
            "aria-expanded": "false",
            onclick: () => {
                const closed = words.classList.toggle("clamped");
                more.setAttribute("aria-expanded", String(!closed));
                more.textContent = closed ? "All of it" : "Less";
            },
        },
        "All of it",
    );
    if (long) words.classList.add("clamped");
    return el(
        "li",
        {class: "finding"},
        el(
            "div",
            {class: "finding-head"},
            text(f, "id") ? el("h3", null, el("bdi", null, findingName(text(f, "id")))) : null,
            el("span", {class: "badge " + kind}, label),
        ),
        words,
        long ? more : null,
    );
}

function findingName(id) {
    return capital(plain(id, 40).replace(/_/g, " "));
}

/* Measures of the overview and of the summary, one place for name, unit and how a run gives it. */
const MEASURES = {
    loss: {
        title: "Held-out loss",
        unit: "nats per token",
        of: (run) => number(run.raw, "eval", "loss"),
        format: (v) => fixed(v, 3),
    },
    share: {
        title: "First-token share",
        unit: "of attention, queries from T/4 on",
        of: (run) => number(run.raw, "inspect", "f_attn_mean", "from_quarter"),
        format: share,
    },
    gate: {
        title: "Mean gate score",
        unit: "over layers and heads",
        of: (run) => number(run.raw, "inspect", "gate_mean"),
        format: share,
    },
    peak: {
        title: "First-token peak",
        unit: "× median |h|, largest layer",
        of: peakRatio,
        format: (v) => significant(v, 3),
    },
    act: {
        title: "M-Act",
        unit: "max |h|, mean over layers",
        of: (run) => number(run.raw, "inspect", "m_act_mean"),
        format: (v) => significant(v, 3),
    },
    small: {
        title: "Attention output < 0.01",
        unit: "share after the gate, mean over layers",
        of: (run) => overLayers(run, "mean", (layer) => number(layer, "sparsity", "after_0.01")),
        format: share,
    },
};

function peakRatio(run) {
    return overLayers(run, "largest", (layer) => {
        const top = number(layer, "first_token_peak", "token_0");
        const middle = number(layer, "first_token_peak", "median");
        return top !== null && middle > 0 ? top / middle : null;
    });
}

function armMarks(arm, of) {
    const values = countedRuns(arm).map(of).filter(isNumber);
    const one = mean(values);
    return one === null
        ? []
        : (values.length > 1 ? values.map((value) => ({value, pale: true})) : []).concat([{value: one}]);
}

function overviewFigure(study) {
    return figure({
        id: "fig-overview",
        wide: true,
        title: "The arms at a glance",
        caption: "Large mark: mean over seeds; pale marks: single seeds. Each panel has its own axis.",
        draw: (host, fig) => {
            const arms = shownArms(study);
            const uniform = uniformMarks(study, "from_quarter");
            const panels = Object.entries(MEASURES).map(([key, m]) => ({
                title: m.title,
                unit: m.unit,
                marks: arms.map((arm) => armMarks(arm, m.of)),
                zero: key === "share" || key === "gate" || key === "small",
                reference:
                    key === "share" && uniform.length === 1
                        ? {value: uniform[0].y, label: "uniform " + share(uniform[0].y)}
                        : null,
            }));
            if (!panels.some((p) => p.marks.some((m) => m.length)))
                return {empty: whyNoRuns(study, "measures")};
            dotRows(
                host,
                armRows(arms),
                panels.filter((p) => p.marks.some((m) => m.length)),
                "Held-out loss, first-token share, gate score and activations of every arm",
            );
            return {
                csv: [["arm", "measure", "seed", "value"]].concat(
                    arms.flatMap((arm) =>
                        Object.values(MEASURES).flatMap((m) =>
                            arm.runs.map((run) => [arm.name, m.title, run.seed, m.of(run)]),
                        ),
                    ),
                ),
            };
        },
    });
}
