// Numbers and times as people read them: the same as `words.py` writes them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function number(value) {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) || Math.abs(value) >= 100 ? whole.format(value) : value.toFixed(1);
}

export function size(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(value)} B` : `${value.toFixed(1)} ${UNITS[unit]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 60) return `${value.toFixed(0)} s`;
  const [minutes, hours, days] = [60, 3600, 86400].map((each) => Math.floor(value / each));
  if (hours === 0) return `${minutes} min`;
  return days === 0 ? `${hours} h ${minutes % 60} min` : `${days} d ${hours % 24} h`;
}

export function percent(value) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`;
}

export const forms = { number, percent, size, seconds };
