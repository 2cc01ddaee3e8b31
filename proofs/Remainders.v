(** Remainders of small numbers, as case distinctions that lia understands. *)

From Coq Require Import Arith Lia.

Lemma mod_small_cases x n :
  x < 3 * n -> x mod n = if x <? n then x else if x <? 2 * n then x - n else x - 2 * n.
Proof.
  intros H. destruct (Nat.ltb_spec x n); [apply Nat.mod_small; assumption|].
  destruct (Nat.ltb_spec x (2 * n)); symmetry.
  - apply (Nat.mod_unique _ _ 1); lia.
  - apply (Nat.mod_unique _ _ 2); lia.
Qed.

(** Solve linear goals with remainders: replace the innermost one, split, repeat. *)
Ltac split_ltb :=
  repeat match goal with
  | |- context [?x <? ?y] => destruct (Nat.ltb_spec x y); try lia
  | H : context [?x <? ?y] |- _ => destruct (Nat.ltb_spec x y); try lia
  end.

Ltac small_mods :=
  repeat (match goal with
  | |- context [?x mod ?n] => rewrite (mod_small_cases x n) by lia
  | H : context [?x mod ?n] |- _ => rewrite (mod_small_cases x n) in H by lia
  end; split_ltb);
  try lia.

(** Shifting by s round a ring of n maps different ranks to different ranks. *)
Lemma shift_injective n s a b :
  a < n -> b < n -> (a + s) mod n = (b + s) mod n -> a = b.
Proof.
  intros Ha Hb. rewrite <- (Nat.add_mod_idemp_r a), <- (Nat.add_mod_idemp_r b) by lia.
  assert (s mod n < n) as Hs by (apply Nat.mod_upper_bound; lia).
  generalize dependent (s mod n). clear s. intros s Hs. small_mods.
Qed.
