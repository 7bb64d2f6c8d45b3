"use strict";
// The scoreboard of what the filters leave: the means, intervals and words of answer/scoreboard.py, made again.
function ngraphBoard(data, cells) {
  const { text, isLeft, chosen, digits } = cells;
  const FEWEST_MODELS = 3, ALL = "all models", DENSE = "dense", BY_RESULT = ["outcome", "verdict"];
  const { cell: counted, against, workload, done: doneOf, value, low, high, quantiles, error_control: hasErrorControl } = data.board;
  const doneTo = (at) => doneOf[at] ?? DENSE;
  const every = counted.map((_, at) => at);
  const factor = (number) => `${digits(number)}x`;
  const end = (number) => (number < 1e4 ? factor(number) : "more than 10,000x");
  const mean = (numbers) => numbers.reduce((sum, one) => sum + one, 0) / numbers.length;
  const exp = (number) => Math.exp(Math.min(700, Math.max(-700, number)));
  const many = (number, one) => `${number.toLocaleString("en")} ${one}${number === 1 ? "" : "s"}`;
  const places = (some, of) => [...new Set(some.map(of))].sort(naturally);
  const runOf = (at) => (data.runs.length ? text("run", counted[at]) : "");

  function byModel(some, numbers) {
    const models = new Map();
    for (const at of some) {
      const model = text("model", counted[at]);
      models.set(model, [...(models.get(model) ?? []), numbers[at]]);
    }
    return [...models.values()].map(mean);
  }

  // Over models from three on, else over launches: the mean of the cells' bounds, where each has some that hold.
  function endsOf(some, logs) {
    if (logs.length >= FEWEST_MODELS) {
      const middle = mean(logs), deviation = Math.sqrt(logs.reduce((sum, one) => sum + (one - middle) ** 2, 0) / (logs.length - 1));
      const half = quantiles[logs.length - FEWEST_MODELS] * deviation / Math.sqrt(logs.length);
      return [exp(middle - half), exp(middle + half)];
    }
    if (!hasErrorControl[runOf(some[0])] || some.some((at) => low[at] === null)) return [null, null];
    return [low, high].map((numbers) => exp(mean(byModel(some, numbers))));
  }

  function scoreOf(mine, there, family, byResult) {
    const logs = byModel(mine, value), [from, to] = byResult ? [null, null] : endsOf(mine, logs);
    const claim = from === null ? "" : from > 1 ? "faster" : to < 1 ? "slower" : "";
    const missing = there.size - new Set(mine.map((at) => workload[at])).size;
    const over = from === null ? "" : logs.length >= FEWEST_MODELS ? ", interval over models" : ", interval over launches";
    const middle = exp(mean(logs)), [first] = mine;
    return {
      run: runOf(first), device: text("device", counted[first]), compiler: text("compiler", counted[first]),
      baseline: against[first], family, place: `${family} · ${text("compiler", counted[first])}`,
      value: middle, low: from, high: to, text: factor(middle) + (from === null ? "" : ` [${end(from)}, ${end(to)}]`),
      claim: claim || "none", models: logs.length, cells: mine.length,
      basis: `${many(logs.length, "model")}, ${many(mine.length, "cell")}${over}${missing ? `; ${many(missing, "cell")} missing` : ""}${byResult ? "; chosen by result, no interval" : ""}`,
    };
  }

  // Whether the filters choose cells by what was measured of them: no interval over such a choice would hold.
  const isByResult = () => every.some((at) => !isLeft(counted[at]) && isLeft(counted[at], BY_RESULT));

  // By run, device and compiler, that of all models first, then the families'. Hidden compilers have no mean, but what
  // they have measured says what the others lack.
  let whole = null;
  const scores = (isWhole = false) => (isWhole ? (whole ??= made(true)) : made(false));

  function made(isWhole) {
    const some = isWhole ? every : every.filter((at) => isLeft(counted[at], ["compiler"]));
    const byResult = !isWhole && isByResult();
    const families = places(every, (at) => text("family", counted[at])), found = [];
    for (const run of data.runs.length ? data.runs : [""]) {
      for (const device of places(some, (at) => text("device", counted[at]))) {
        const onDevice = some.filter((at) => runOf(at) === run && text("device", counted[at]) === device);
        for (const done of places(onDevice, doneTo).sort((one, other) => (one !== DENSE) - (other !== DENSE))) {
          found.push(...scoresOf(onDevice.filter((at) => doneTo(at) === done), families, done, isWhole, byResult));
        }
      }
    }
    return found;
  }

  // Of networks to which the same was done: what is pruned or in fewer bits is no longer the model of the others.
  function scoresOf(here, families, done, isWhole, byResult) {
    const found = [], heading = (family) => (done === DENSE ? family : `${family}, ${done}`);
    const familiesHere = new Set(here.map((at) => text("family", counted[at])));
    const targets = new Map(here.map((at) => [JSON.stringify([text("compiler", counted[at]), against[at]]), [text("compiler", counted[at]), against[at]]]));
    for (const [compiler, baseline] of [...targets.values()].sort((one, other) => naturally(one[0], other[0]) || naturally(one[1], other[1]))) {
      if (!isWhole && chosen.compiler !== null && !chosen.compiler.has(compiler)) continue;
      for (const family of [ALL, ...(familiesHere.size > 1 ? families : [])]) {
        const rivals = here.filter((at) => against[at] === baseline && (family === ALL || text("family", counted[at]) === family));
        const mine = rivals.filter((at) => text("compiler", counted[at]) === compiler);
        if (mine.length) found.push(scoreOf(mine, new Set(rivals.map((at) => workload[at])), heading(family), byResult));
      }
    }
    return found;
  }

  // Rows of the chart: families by compilers, those of all models first. Those of several runs share their place.
  function rows(isWhole) {
    const found = scores(isWhole), order = [...new Set(found.map((score) => score.family))];
    const rank = (score) => order.indexOf(score.family);
    if (!data.runs.length) return [...found].sort((one, other) => rank(one) - rank(other));
    return [...found].sort((one, other) => rank(one) - rank(other) || naturally(one.device, other.device) || naturally(one.compiler, other.compiler));
  }

  return { scores, rows, isByResult, ALL };
}
