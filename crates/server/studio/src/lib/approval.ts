/** Questions of the agent about a call of a tool. Other questions have other content. */

export interface ApprovalRequest {
  tool: string;
  args: Record<string, unknown>;
  question: string;
  problem?: string;
  form?: unknown;
}

export function asApproval(question: unknown): ApprovalRequest | null {
  const object = question as Partial<ApprovalRequest> & { call_id?: unknown };
  const fits =
    typeof object === 'object' && object !== null && typeof object.tool === 'string' &&
    typeof object.call_id === 'string' && typeof object.args === 'object' && object.args !== null;
  return fits ? (object as ApprovalRequest) : null;
}

/** The change that an edit of a file would make, as lines. */
export function editLines(args: Record<string, unknown>): { sign: string; text: string }[] {
  const lines = (value: unknown, sign: string) =>
    typeof value === 'string' ? value.split('\n').map((text) => ({ sign, text })) : [];
  const before = args.old_string ?? args.old_text ?? args.old;
  const after = args.new_string ?? args.new_text ?? args.new;
  return typeof before === 'string' && typeof after === 'string' ? [...lines(before, '-'), ...lines(after, '+')] : [];
}
