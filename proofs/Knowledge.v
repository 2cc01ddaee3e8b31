(** Knowledge: which rank may know which item, and how messages spread it.

    A rank knows some set of items.  A message from [sender] to [receiver]
    hands over any part of what the sender knows ([carries] picks the part), so
    the model covers messages that carry one item, all items, or a reduction of
    some of them.  A rank never forgets.  Ranks are natural numbers; those that
    own nothing serve as relays or switches.

    The main fact is the linearisation: a synchronous round, whose messages all
    read the state before the round, spreads no more than the same messages
    executed one after the other.  Hence a lower bound on the number of messages
    of a sequential execution holds for synchronous ones. *)

From Coq Require Import List Arith Lia Bool.
Import ListNotations.

Section Knowledge.
  Context {item : Type}.

  Definition knowledge := nat -> item -> bool.

  Record message := Message { sender : nat; receiver : nat; carries : item -> bool }.

  (** [K'] knows at least what [K] knows. *)
  Definition below (K K' : knowledge) := forall r i, K r i = true -> K' r i = true.

  (** What [m] tells rank [r] about [i] when it reads the state [K]. *)
  Definition tells (K : knowledge) (r : nat) (i : item) (m : message) : bool :=
    (receiver m =? r) && (K (sender m) i && carries m i).

  (** One message; a sequence of messages; a synchronous round; many rounds. *)
  Definition deliver (K : knowledge) (m : message) : knowledge :=
    fun r i => K r i || tells K r i m.
  Definition in_sequence (K : knowledge) (ms : list message) : knowledge :=
    fold_left deliver ms K.
  Definition at_once (K : knowledge) (ms : list message) : knowledge :=
    fun r i => K r i || existsb (tells K r i) ms.
  Definition in_rounds (K : knowledge) (rounds : list (list message)) : knowledge :=
    fold_left at_once rounds K.

  Lemma below_refl K : below K K.
  Proof. intros r i; auto. Qed.

  Lemma below_trans K K' K'' : below K K' -> below K' K'' -> below K K''.
  Proof. intros H H' r i; auto. Qed.

  Lemma tells_mono K K' r i m : below K K' -> tells K r i m = true -> tells K' r i m = true.
  Proof.
    intros H; unfold tells. rewrite !andb_true_iff. intros (-> & Hk & ->).
    apply H in Hk. auto.
  Qed.

  Lemma deliver_mono K K' m : below K K' -> below (deliver K m) (deliver K' m).
  Proof.
    intros H r i; unfold deliver; rewrite !orb_true_iff.
    intros [?|?]; [left; auto|right; eauto using tells_mono].
  Qed.

  Lemma in_sequence_mono ms : forall K K', below K K' -> below (in_sequence K ms) (in_sequence K' ms).
  Proof.
    induction ms as [|m ms IH]; intros K K' H; [assumption|].
    apply IH, deliver_mono, H.
  Qed.

  Lemma in_sequence_grows ms : forall K, below K (in_sequence K ms).
  Proof.
    induction ms as [|m ms IH]; intros K; [apply below_refl|].
    apply below_trans with (deliver K m); [|apply IH].
    intros r i H; unfold deliver; rewrite H; reflexivity.
  Qed.

  Lemma in_sequence_app K ms ms' : in_sequence K (ms ++ ms') = in_sequence (in_sequence K ms) ms'.
  Proof. apply fold_left_app. Qed.

  Lemma at_once_grows K ms : below K (at_once K ms).
  Proof. intros r i H; unfold at_once; rewrite H; reflexivity. Qed.

  Lemma at_once_mono K K' ms : below K K' -> below (at_once K ms) (at_once K' ms).
  Proof.
    intros H r i; unfold at_once; rewrite !orb_true_iff, !existsb_exists.
    intros [?|(m & Hm & Ht)]; [left; auto|right; exists m; eauto using tells_mono].
  Qed.

  Lemma in_rounds_mono rounds : forall K K', below K K' -> below (in_rounds K rounds) (in_rounds K' rounds).
  Proof.
    induction rounds as [|ms rounds IH]; intros K K' H; [assumption|].
    apply IH, at_once_mono, H.
  Qed.

  Lemma in_rounds_app K rs rs' : in_rounds K (rs ++ rs') = in_rounds (in_rounds K rs) rs'.
  Proof. apply fold_left_app. Qed.

  (** A message of the sequence is delivered with at least what its sender knew
      at the start. *)
  Lemma in_sequence_tells ms : forall K r i m,
    In m ms -> tells K r i m = true -> in_sequence K ms r i = true.
  Proof.
    induction ms as [|a ms IH]; intros K r i m Hm Ht; [destruct Hm|].
    destruct Hm as [->|Hm]; cbn.
    - apply in_sequence_grows. unfold deliver; rewrite Ht; apply orb_true_r.
    - apply IH with m; [assumption|].
      apply tells_mono with K; [|assumption].
      intros r' i' H; unfold deliver; rewrite H; reflexivity.
  Qed.

  Lemma linearise_round K ms : below (at_once K ms) (in_sequence K ms).
  Proof.
    intros r i; unfold at_once; rewrite orb_true_iff, existsb_exists.
    intros [H|(m & Hm & Ht)]; [apply in_sequence_grows, H|eauto using in_sequence_tells].
  Qed.

  (** Linearisation: the messages of all rounds, one after the other, spread at
      least as much as the synchronous rounds do. *)
  Theorem linearise : forall rounds K,
    below (in_rounds K rounds) (in_sequence K (concat rounds)).
  Proof.
    induction rounds as [|ms rounds IH]; intros K; [apply below_refl|].
    cbn [concat]. rewrite in_sequence_app.
    apply below_trans with (in_rounds (in_sequence K ms) rounds).
    - apply (in_rounds_mono rounds (at_once K ms)), linearise_round.
    - apply IH.
  Qed.
End Knowledge.

Arguments knowledge : clear implicits.
Arguments message : clear implicits.

Print Assumptions linearise.
