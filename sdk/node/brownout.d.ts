import type { IncomingMessage, ServerResponse } from 'node:http';

/** Which optional parts are computed: a Boolean item with parameters, RFC 9651. */
export declare class Decision {
  /** Whether the parts are that have no word of their own. */
  readonly item: boolean;
  /** The parts that have, by name. */
  readonly parts: ReadonlyMap<string, boolean>;
  /** The header it was read from; null if there was none, or none that could be read. */
  readonly value: string | null;
  private constructor();
  /** Whether this part is computed; without a name, the page's only one. */
  allows(part?: string): boolean;
  /** Reads the header's lines; none, several or a malformed one: everything is computed. */
  static read(lines: readonly string[]): Decision;
}

/** The decision on one request; remembers which parts the application was refused. */
export interface Brownout {
  readonly decision: Decision;
  /**
   * Whether this optional part is to be computed; without a name, the page's only one.
   *
   * Ask before the first byte of the body leaves. If the head is gone and did not say that the
   * response is lean, caches may keep it, so every later answer is yes.
   */
  optional(part?: string): boolean;
  /** The parts that were asked for and answered no, in the order they were asked first. */
  readonly refused: string[];
  /** The headers that tell inner services to obey this decision; empty if there is none. */
  outgoingHeaders(): Record<string, string>;
}

/** Middleware for express, connect and node:http: sets `request.brownout`. */
export declare function brownout(): (
  request: IncomingMessage,
  response: ServerResponse,
  next: () => unknown,
) => unknown;

/** Whether this optional part is to be computed for the request being served; outside, always. */
export declare function optional(part?: string): boolean;

/** The decision on the request being served; undefined outside of one. */
export declare function current(): Brownout | undefined;

/** The headers that tell inner services to obey the decision; empty if there is none. */
export declare function outgoingHeaders(): Record<string, string>;

declare const middleware: typeof brownout & {
  optional: typeof optional;
  current: typeof current;
  outgoingHeaders: typeof outgoingHeaders;
};
export default middleware;

declare global {
  namespace Express {
    interface Request {
      brownout: Brownout;
    }
  }
}
