(** Dissemination with k ports attains the round bound, for every n and k.

    In round t every rank r sends all it knows to the ranks r + j (k+1)^t mod n,
    for j = 1 .. k.  After t rounds, rank i + d knows the input of rank i for all
    d < (k+1)^t.  So with the least e that has (k+1)^e >= n, e rounds are enough,
    and by the round bound no k-port algorithm has fewer. *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Remainders Knowledge Rounds.
Import ListNotations.

Section Dissemination.
  Variables n k : nat.

  Definition send_all (s r : nat) : message nat :=
    Message r ((r + s) mod n) (fun _ => true).

  Definition dissemination_round (t : nat) : list (message nat) :=
    concat (map (fun j => map (send_all (j * (k + 1) ^ t)) (seq 0 n)) (seq 1 k)).

  Definition dissemination (rounds : nat) : list (list (message nat)) :=
    map dissemination_round (seq 0 rounds).

  Definition own_rank : knowledge nat := fun r i => r =? i.

  Theorem dissemination_spreads e : 1 <= n ->
    forall i d, i < n -> d < (k + 1) ^ e ->
    in_rounds own_rank (dissemination e) ((i + d) mod n) i = true.
  Proof.
    intros Hn. unfold dissemination.
    induction e as [|e IH]; intros i d Hi Hd.
    - cbn in Hd. replace d with 0 by lia. cbn. rewrite Nat.add_0_r, Nat.mod_small by assumption.
      apply Nat.eqb_refl.
    - rewrite seq_S, map_app, in_rounds_app. cbn [Nat.add map in_rounds fold_left].
      set (K := in_rounds own_rank (map dissemination_round (seq 0 e))) in *.
      set (p := (k + 1) ^ e) in *.
      assert (Hp : p <> 0) by (apply Nat.pow_nonzero; lia).
      (* d = j p + d' *)
      pose proof (Nat.div_mod d p Hp) as Ed. pose proof (Nat.mod_upper_bound d p Hp) as Hd'.
      set (j := d / p) in *. set (d' := d mod p) in *.
      assert (Hj : j < k + 1).
      { apply Nat.div_lt_upper_bound; [assumption|]. cbn [Nat.pow] in Hd. fold p in Hd. lia. }
      specialize (IH i d' Hi Hd').
      unfold at_once. apply orb_true_iff.
      destruct (Nat.eq_dec j 0) as [Ej|Ej].
      + left. replace d with d' by nia. exact IH.
      + right. apply existsb_exists. exists (send_all (j * p) ((i + d') mod n)). split.
        * apply in_concat. exists (map (send_all (j * p)) (seq 0 n)). split.
          -- apply (in_map (fun j => map (send_all (j * p)) (seq 0 n))). apply in_seq. lia.
          -- apply in_map, in_seq. split; [lia|]. apply Nat.mod_upper_bound; lia.
        * unfold tells, send_all; cbn. rewrite IH, Nat.add_mod_idemp_l by lia.
          replace (i + d' + j * p) with (i + d) by nia. rewrite Nat.eqb_refl. reflexivity.
  Qed.

  Lemma dissemination_send_ports e : send_ports k (dissemination e).
  Proof.
    intros ms Hms r. apply in_map_iff in Hms as (t & <- & _).
    unfold dissemination_round.
    etransitivity; [apply (count_concat_le _ _ 1)|rewrite map_length, seq_length; lia].
    intros l Hl. apply in_map_iff in Hl as (j & <- & _). rewrite count_map. cbn.
    apply count_unique; [apply seq_NoDup|]. intros a b _ _ Ha Hb.
    apply Nat.eqb_eq in Ha, Hb. congruence.
  Qed.

  Lemma dissemination_receive_ports e : receive_ports k (dissemination e).
  Proof.
    intros ms Hms r. apply in_map_iff in Hms as (t & <- & _).
    unfold dissemination_round.
    etransitivity; [apply (count_concat_le _ _ 1)|rewrite map_length, seq_length; lia].
    intros l Hl. apply in_map_iff in Hl as (j & <- & _). rewrite count_map. cbn [receiver send_all].
    apply count_unique; [apply seq_NoDup|]. intros a b Ia Ib Ha Hb.
    apply in_seq in Ia, Ib. apply Nat.eqb_eq in Ha, Hb.
    apply (shift_injective n (j * (k + 1) ^ t)); [lia|lia|congruence].
  Qed.

  (** For every n >= 1 and k: e rounds, the least possible. *)
  Theorem dissemination_optimal e :
    1 <= n -> n <= (k + 1) ^ e -> (forall d, d < e -> (k + 1) ^ d < n) ->
    length (dissemination e) = e /\
    send_ports k (dissemination e) /\ receive_ports k (dissemination e) /\
    (forall r i, r < n -> i < n -> in_rounds own_rank (dissemination e) r i = true) /\
    (forall rounds, from_ranks n rounds -> receive_ports k rounds \/ send_ports k rounds ->
       (forall r i, r < n -> i < n -> in_rounds own_rank rounds r i = true) ->
       e <= length rounds).
  Proof.
    intros Hn He Hleast. repeat split.
    - unfold dissemination. rewrite map_length, seq_length. reflexivity.
    - apply dissemination_send_ports.
    - apply dissemination_receive_ports.
    - intros r i Hr Hi.
      assert (E : r = (i + (r + n - i) mod n) mod n) by small_mods.
      rewrite E. apply dissemination_spreads; try assumption.
      apply Nat.lt_le_trans with n; [apply Nat.mod_upper_bound; lia|assumption].
    - intros rounds Hf Hp H.
      assert (B : n <= (k + 1) ^ length rounds).
      { apply (all_to_all_rounds n k (fun i => i) own_rank); try assumption.
        intros i _ r E. apply Nat.eqb_eq, E. }
      apply Nat.nlt_ge. intros C. specialize (Hleast _ C). lia.
  Qed.
End Dissemination.

Print Assumptions dissemination_spreads.
Print Assumptions dissemination_optimal.
