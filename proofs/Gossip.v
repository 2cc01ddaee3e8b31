(** One-way gossip: if each of n ranks knows one item of its own and messages go
    one way, 2(n-1) messages are needed until everybody knows everything.

    The argument: look at the first moment when somebody is complete.  Each other
    rank has sent by then, for otherwise its item would still be known to itself
    only: n-1 messages.  All ranks but that one are still incomplete, so each must
    yet receive: n-1 more messages.

    (When one call informs both sides, 2n-4 calls do for n >= 4: another model,
    which this bound does not contradict.) *)

From Coq Require Import List Arith Lia Bool.
From Algocc Require Import Counting Knowledge.
Import ListNotations.

Section Gossip.
  Context {item : Type}.
  Implicit Types (K : knowledge item) (ms : list (message item)).

  (** A rank that learns something has received a message. *)
  Lemma must_receive r i ms : forall K,
    K r i = false -> in_sequence K ms r i = true -> In r (map receiver ms).
  Proof.
    induction ms as [|m ms IH]; intros K H0 H1; [cbn in H1; congruence|].
    destruct (Nat.eq_dec (receiver m) r) as [e|ne]; [left; assumption|right].
    apply (IH (deliver K m)); [|assumption].
    unfold deliver, tells. rewrite H0. destruct (Nat.eqb_spec (receiver m) r); easy.
  Qed.

  (** An item that only [r] knows stays with [r] until [r] sends. *)
  Lemma must_send r i ms : forall K,
    (forall q, K q i = true -> q = r) ->
    forall q, in_sequence K ms q i = true -> q <> r -> In r (map sender ms).
  Proof.
    induction ms as [|m ms IH]; intros K H0 q H1 Hq; [apply H0 in H1; easy|].
    destruct (Nat.eq_dec (sender m) r) as [e|ne]; [left; assumption|right].
    apply (IH (deliver K m)) with q; try assumption.
    intros p Hp. unfold deliver, tells in Hp.
    rewrite orb_true_iff, !andb_true_iff in Hp.
    destruct Hp as [Hp|(_ & Hp & _)]; apply H0 in Hp; easy.
  Qed.

  Section Ranks.
    Variable n : nat.
    Variable of_rank : nat -> item.  (* the item that a rank starts with *)

    Definition complete K r : bool := forallb (fun i => K r (of_rank i)) (seq 0 n).
    Definition someone_complete K : bool := existsb (complete K) (seq 0 n).

    Lemma complete_spec K r : complete K r = true <-> forall i, i < n -> K r (of_rank i) = true.
    Proof.
      unfold complete. rewrite forallb_forall. split.
      - intros H i Hi. apply H, in_seq; lia.
      - intros H i Hi. apply in_seq in Hi. apply H; lia.
    Qed.

    Lemma incomplete_spec K r :
      complete K r = false -> exists i, i < n /\ K r (of_rank i) = false.
    Proof.
      unfold complete. intros H.
      assert (E : existsb (fun i => negb (K r (of_rank i))) (seq 0 n) = true).
      { induction (seq 0 n) as [|i l IH]; [discriminate|]. cbn in *.
        destruct (K r (of_rank i)); cbn in *; auto. }
      apply existsb_exists in E as (i & Hi & Hk). apply in_seq in Hi.
      exists i; split; [lia|]. destruct (K r (of_rank i)); easy.
    Qed.

    Lemma someone_complete_spec K :
      someone_complete K = true <-> exists r, r < n /\ complete K r = true.
    Proof.
      unfold someone_complete. rewrite existsb_exists.
      split; intros (r & Hr & H); exists r; rewrite in_seq in *; split; auto; lia.
    Qed.

    (** The first message that completes somebody. *)
    Lemma first_completion ms : forall K,
      someone_complete K = false -> someone_complete (in_sequence K ms) = true ->
      exists ms1 m ms2, ms = ms1 ++ m :: ms2 /\
        someone_complete (in_sequence K ms1) = false /\
        someone_complete (in_sequence K (ms1 ++ [m])) = true.
    Proof.
      induction ms as [|m ms IH]; intros K H0 H1; [cbn in H1; congruence|].
      destruct (someone_complete (deliver K m)) eqn:E.
      - exists [], m, ms. auto.
      - destruct (IH _ E H1) as (ms1 & m' & ms2 & -> & H2 & H3).
        exists (m :: ms1), m', ms2. auto.
    Qed.

    Theorem gossip K ms :
      (forall i, i < n -> forall r, K r (of_rank i) = true -> r = i) ->
      (forall r i, r < n -> i < n -> in_sequence K ms r (of_rank i) = true) ->
      2 * (n - 1) <= length ms.
    Proof.
      intros H0 H1.
      destruct (le_lt_dec n 1) as [|Hn]; [lia|].
      assert (S0 : someone_complete K = false).
      { apply not_true_iff_false. rewrite someone_complete_spec. intros (r & Hr & Hc).
        rewrite complete_spec in Hc.
        assert (r = 0) by (apply H0, Hc; lia). assert (r = 1) by (apply H0, Hc; lia). lia. }
      assert (S1 : someone_complete (in_sequence K ms) = true).
      { apply someone_complete_spec. exists 0. split; [lia|].
        apply complete_spec. intros i Hi; apply H1; lia. }
      destruct (first_completion ms K S0 S1) as (ms1 & m & ms2 & -> & Before & After).
      apply someone_complete_spec in After as (x & Hx & Hcx). rewrite complete_spec in Hcx.
      pose proof (others_length n x Hx) as Hothers.
      (* until the first completion every other rank has sent *)
      assert (A : length (others n x) <= length (ms1 ++ [m])).
      { apply (distinct_images sender); [apply NoDup_others|].
        intros r Hr. apply in_others in Hr as [Hr1 Hr2].
        apply (must_send r (of_rank r) _ K) with x; auto. }
      (* and every other rank must receive afterwards *)
      assert (B : length (others n x) <= length ms2).
      { apply (distinct_images receiver); [apply NoDup_others|].
        intros r Hr. apply in_others in Hr as [Hr1 Hr2].
        assert (Ir : complete (in_sequence K (ms1 ++ [m])) r = false).
        { assert (Br : complete (in_sequence K ms1) r = false).
          { apply not_true_iff_false. intros C. apply not_true_iff_false in Before.
            apply Before, someone_complete_spec. eauto. }
          assert (receiver m = x) as Ex.
          { destruct (Nat.eq_dec (receiver m) x) as [|ne]; [assumption|exfalso].
            apply not_true_iff_false in Before. apply Before, someone_complete_spec.
            exists x; split; [assumption|]. apply complete_spec. intros i Hi.
            specialize (Hcx i Hi). rewrite in_sequence_app in Hcx. cbn in Hcx.
            unfold deliver, tells in Hcx. destruct (Nat.eqb_spec (receiver m) x); [easy|].
            rewrite orb_false_r in Hcx. assumption. }
          apply incomplete_spec in Br as (i & Hi & Hk). apply not_true_iff_false.
          rewrite complete_spec. intros C. specialize (C i Hi).
          rewrite in_sequence_app in C. cbn in C. unfold deliver, tells in C.
          destruct (Nat.eqb_spec (receiver m) r); [congruence|].
          rewrite Hk in C. discriminate. }
        apply incomplete_spec in Ir as (i & Hi & Hk).
        apply (must_receive r (of_rank i) ms2 (in_sequence K (ms1 ++ [m]))); [assumption|].
        rewrite <- in_sequence_app, <- app_assoc. apply H1; assumption. }
      rewrite app_length in A |- *. cbn in A |- *. lia.
    Qed.

    (** The same for synchronous rounds, by linearisation. *)
    Corollary gossip_rounds K rounds :
      (forall i, i < n -> forall r, K r (of_rank i) = true -> r = i) ->
      (forall r i, r < n -> i < n -> in_rounds K rounds r (of_rank i) = true) ->
      2 * (n - 1) <= length (concat rounds).
    Proof.
      intros H0 H1. apply (gossip K); [assumption|].
      intros r i Hr Hi. apply linearise, H1; assumption.
    Qed.
  End Ranks.
End Gossip.

Print Assumptions gossip.
Print Assumptions gossip_rounds.
