/** One leadership. */
export interface Term {
  /** The fencing token. It stays readable after the term. */
  readonly epoch: bigint;
  /** The number of the slot, from 1. */
  readonly slot: number;
  /** Aborted once the work has to stop. Its reason is a `TermOver`. */
  readonly signal: AbortSignal;
  /** Whether no renewal was confirmed for half a TTL. */
  readonly atRisk: boolean;
  /** The epoch, for the next write. Throws `TermOver` once the work has to stop. */
  fence(): bigint;
  /** The milliseconds until the work has to stop if no renewal is confirmed. Zero once it has to. */
  remaining(): number;
  /** Says that the work goes on. With `--alive-within`, call it from the work, often enough. */
  alive(): void;
  /** Asks the host to end this leadership. Go on until `signal` is aborted. */
  resign(): void;
}

/** The host that started this program. */
export interface Host {
  /**
   * Says whether this process could lead. False while leading resigns. A process that is kept after it has resigned leads
   * again only after `setReady(true)`.
   */
  setReady(ready: boolean): void;
}

export interface Options {
  /** Builds what the work needs. When it has ended, this process could lead. */
  ready?: (host: Host) => unknown;
  /** Ends the term and the run. */
  signal?: AbortSignal;
}

/**
 * Connects to the host that started this program, calls `ready`, and calls `lead` for each leadership. When the
 * promise of `lead` is settled, its work must have stopped: the host then has this process killed, and starts a new one
 * as a standby.
 * If `lead` fails, its error is printed and told to the host, which ends this process.
 * Resolves after `signal` was aborted. Rejects with what `ready` or `lead` fails with, or with an error of this module.
 */
export function run(options: Options, lead: (term: Term, host: Host) => unknown): Promise<void>;

/** `vvm run --warm` did not start this program. */
export class NotStarted extends Error {}
/** The host has refused the connection. The text says why. */
export class Refused extends Error {}
/** The host has closed the connection, or can't be understood. It ends this program. */
export class Closed extends Error {}
/** The leadership ends: begin nothing more. */
export class TermOver extends Error {}
