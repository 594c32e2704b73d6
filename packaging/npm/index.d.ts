/** Options of {@link start}. */
export interface StartOptions {
  /** The data folder; without it the data is in memory. */
  dbpath?: string;
  /** The port to listen on; 0, the default, takes a free one. */
  port?: number;
  /** Name of a replica set whose only member the server is: for transactions and change streams. */
  replicaSet?: string;
  /** Further options of `marula serve`. */
  args?: string[];
  /** How long the server may take to accept connections; 30,000 unless said. */
  timeoutMs?: number;
}

/** A running server. */
export declare class Server {
  readonly uri: string;
  readonly host: string;
  readonly port: number;
  readonly pid: number;
  /** What the server has logged so far. */
  log(): string;
  /** Ends the server and waits for it. */
  stop(timeoutMs?: number): Promise<void>;
}

/** Starts a server and resolves once it accepts connections. */
export declare function start(options?: StartOptions): Promise<Server>;

/** The path of the program. */
export declare function binary(): string;
