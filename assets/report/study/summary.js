/* SPDX-License-Identifier: Apache-2.0 */
/* The table of arms, and the comparison within seeds: both arms of a pair saw the same text in the same
 * order, so their difference is steadier than the losses themselves. */

function summarySection(study) {
    return section(
        "summary",
        "The arms in numbers",
        "Mean over the seeds that finished; ± is the standard deviation over seeds. A tinted value " +
            "is the best of its column, whether or not the difference exceeds the spread.",
        summaryTable(study),
        comparisonTable(study),
        comparisonFigure(study),
    );
}

const cellOf = (values, format, note) => {
    const value = mean(values);
    return {value, text: format(value), spread: spreadText(values, format), note};
};

/* Columns: how a run gives the value, how it reads, what stands below it. */
function summaryColumns(study) {
    const uniform = new Set(study.arms.map((arm) => uniformOf(study, arm, "from_quarter")));
    const same = sameData(study);
    const r =
        (...path) =>
        (run) =>
            number(run.raw, ...path);
    return [
        {
            label: "Held-out loss",
            unit: "nats/token",
            best: same ? "min" : null,
            of: MEASURES.loss.of,
            format: (v) => fixed(v, 3),
            title: "Mean cross entropy on held-out text, per token",
        },
        {
            label: "Perplexity",
            best: same ? "min" : null,
            of: r("eval", "perplexity"),
            format: (v) => significant(v, 4),
            title: "exp(loss)",
        },
        {
            label: "Bits/byte",
            best: "min",
            of: r("eval", "bits_per_byte"),
            format: (v) => fixed(v, 3),
            title: "Loss in bits per byte of text: comparable between tokenizers",
        },
        {
            label: "First-token share",
            unit:
                uniform.size === 1 && isNumber([...uniform][0]) ? "uniform: " + share([...uniform][0]) : null,
            best: "min",
            note: (arm) =>
                uniform.size > 1 ? "uniform: " + share(uniformOf(study, arm, "from_quarter")) : null,
            of: MEASURES.share.of,
            format: share,
            title: "Mean attention on position 0, queries from T/4 on, over heads, layers and windows",
        },
        {
            label: "Sink heads",
            unit: "share > 0.3",
            best: "min",
            of: r("inspect", "sink_heads"),
            format: (v) => significant(v, 3),
            note: (arm) => {
                const heads = mean(countedRuns(arm).map(r("inspect", "heads")));
                return heads !== null ? "of " + count(heads) : null;
            },
            title: "Heads whose mean share on position 0 exceeds 0.3",
        },
        {
            label: "Gate mean",
            of: MEASURES.gate.of,
            format: share,
            title: "Mean gate score over layers and heads",
        },
        {
            label: "M\u2011Act",
            best: "min",
            of: MEASURES.act.of,
            format: (v) => significant(v, 3),
            title: "Largest |h| of each layer's output, mean over layers",
        },
        {
            label: "First-token peak",
            unit: "×\u00a0median |h|",
            best: "min",
            of: MEASURES.peak.of,
            format: (v) => significant(v, 3),
            title: "Largest |h| of position 0 over the median |h| of its layer; the largest layer counts",
        },
        {
            label: "Spikes",
            unit: "per run",
            best: "min",
            of: spikeCount,
            format: (v) => significant(v, 2),
            title: "Loss spikes in training, by the definition below",
        },
        {
            label: "Tokens/s",
            best: "max",
            of: r("train", "tokens_per_s"),
            format: count,
            title: "Training throughput",
        },
        {
            label: "Time",
            best: "min",
            of: r("train", "seconds"),
            format: seconds,
            title: "Training time of one run",
        },
        {
            label: "Memory",
            best: "min",
            of: r("train", "peak_memory_bytes"),
            format: bytes,
            title: "Peak memory of training",
        },
    ];
}

function spikeCount(run) {
    return Array.isArray(get(run.raw, "train", "spikes", "events"))
        ? list(run.raw, "train", "spikes", "events").length
        : null;
}

function runNote(arm) {
    const bad = arm.runs.filter((run) => !run.ok);
    if (!arm.runs.length) return "no run";
    return bad.length
        ? bad.length +
              " of " +
              arm.runs.length +
              " runs " +
              [...new Set(bad.map((run) => run.status))].join(", ")
        : null;
}

function summaryTable(study) {
    const columns = summaryColumns(study);
    const base = number(study.baseline && study.baseline.raw, "parameters");
    const rows = study.arms.map((arm) => {
        const own = number(arm.raw, "parameters");
        const runs = countedRuns(arm);
        const parameters = {
            value: own,
            text: count(own),
            note: arm !== study.baseline && own !== null && base !== null ? signedCount(own - base) : null,
        };
        return {
            name: arm.name,
            style: arm.style,
            note:
                [study.arms.length <= 6 && arm.label !== arm.name ? arm.label : null, runNote(arm)]
                    .filter(Boolean)
                    .join(" · ") || null,
            cells: [parameters].concat(
                columns.map((c) => cellOf(runs.map(c.of), c.format, c.note ? c.note(arm) : null)),
            ),
            inner: arm.runs.map((run) => ({
                name: "seed " + run.seed,
                note: run.ok
                    ? null
                    : run.status + (text(run.raw, "error") ? ": " + text(run.raw, "error") : ""),
                cells: [null].concat(columns.map((c) => cellOf([c.of(run)], c.format))),
            })),
        };
    });
    return dataTable({
        id: "tab-summary",
        label: "Arms in numbers",
        columns: [
            {label: "Arm"},
            {
                label: "Parameters",
                unit: "difference",
                title: "Trainable parameters; below: difference to the baseline",
            },
        ].concat(columns),
        rows,
        note:
            "▸ opens the single seeds." +
            (sameData(study)
                ? ""
                : " Arms were trained on different tokens: their losses per token cannot be compared."),
    });
}

function signedCount(x) {
    return x === 0 ? "± 0" : (x > 0 ? "+" : MINUS) + count(Math.abs(x));
}

function comparisonTable(study) {
    const style = new Map(study.arms.map((arm) => [arm.name, arm.style]));
    const rows = list(study.raw, "comparisons")
        .filter((c) => text(c, "arm"))
        .map((c) => {
            const part = (key, digits) => {
                const value = number(c, key, "mean");
                const sd = number(c, key, "sd");
                return {
                    value,
                    text: signed(value, digits),
                    spread: sd !== null ? "± " + fixed(sd, digits) : null,
                    note: list(c, key, "per_seed")
                        .map((v) => signed(v, digits))
                        .join(", "),
                };
            };
            return {
                name: c.arm + " against " + c.against,
                style: style.get(c.arm),
                note: "seeds " + (list(c, "seeds").join(", ") || NONE),
                cells: [
                    part("loss_difference", 3),
                    part("share_difference", 3),
                    {value: number(c, "seconds_ratio"), text: times(number(c, "seconds_ratio"))},
                    {
                        value: number(c, "parameters_difference"),
                        text:
                            number(c, "parameters_difference") === null
                                ? NONE
                                : signedCount(c.parameters_difference),
                    },
                ],
            };
        });
    if (!rows.length)
        return el(
            "p",
            {class: "empty"},
            "No two arms share a finished seed, so there is no comparison within seeds.",
        );
    return dataTable({
        id: "tab-comparison",
        label: "Comparison within seeds",
        caption: "Differences at the same seed (the same text in the same order)",
        rows,
        columns: [
            {label: "Pair"},
            {
                label: "Loss difference",
                unit: "nats/token; single seeds below",
                title: "Below zero: the arm is better than what it is compared with",
            },
            {label: "Share difference", unit: "first-token share"},
            {label: "Time", unit: "ratio"},
            {label: "Parameters", unit: "difference"},
        ],
    });
}

function comparisonFigure(study) {
    return figure({
        id: "fig-comparison",
        wide: true,
        title: "Held-out loss against the baseline, seed by seed",
        caption:
            "Loss of the arm minus loss of the baseline at the same seed, nats per token. Left of " +
            "zero: the arm is better.",
        draw: (host) => {
            const found = list(study.raw, "comparisons");
            const arms = shownArms(study).filter((arm) => found.some((c) => get(c, "arm") === arm.name));
            const of = (arm, key) =>
                found.find((c) => get(c, "arm") === arm.name && list(c, key, "per_seed").length) || {};
            const marks = (key) =>
                arms.map((arm) => {
                    const c = of(arm, key);
                    const single = list(c, key, "per_seed").filter(isNumber);
                    const middle = number(c, key, "mean");
                    return (single.length > 1 ? single.map((value) => ({value, pale: true})) : []).concat([
                        {value: middle},
                    ]);
                });
            if (!arms.some((arm) => number(of(arm, "loss_difference"), "loss_difference", "mean") !== null))
                return {empty: "no two arms share a finished seed"};
            dotRows(
                host,
                armRows(arms),
                [
                    {
                        title: "Loss difference",
                        unit: "nats per token",
                        marks: marks("loss_difference"),
                        reference: {value: 0, label: "no difference"},
                    },
                    {
                        title: "First-token share difference",
                        unit: "of attention",
                        marks: marks("share_difference"),
                        reference: {value: 0, label: "no difference"},
                    },
                ],
                "Differences to the baseline at the same seed",
            );
            return {
                csv: [["arm", "seed", "loss difference", "share difference"]].concat(
                    found.flatMap((c) =>
                        list(c, "seeds").map((seed, i) => [
                            get(c, "arm"),
                            seed,
                            list(c, "loss_difference", "per_seed")[i],
                            list(c, "share_difference", "per_seed")[i],
                        ]),
                    ),
                ),
            };
        },
    });
}
