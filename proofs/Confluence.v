(** Order implies confluence: why a program needs no testing of interleavings.

    A concurrent program is a finite set of events.  An event reads some
    locations and writes some, and what it writes depends only on what it reads.
    Happens-before, [hb], relates events; an execution is any order of the events
    that does not contradict it.  Two events conflict if one of them writes a
    location that the other reads or writes.

    If every two conflicting events are ordered by [hb], one way or the other,
    then all executions end in the same state and every event reads the same
    values in all of them.  So one execution, say the sequential one that the
    schedule describes, stands for all. *)

From Coq Require Import List Arith Lia Bool Permutation.
Import ListNotations.

Section Confluence.
  Context {event location val : Type}.
  Variable event_dec : forall e f : event, {e = f} + {e <> f}.
  Variable location_dec : forall l m : location, {l = m} + {l <> m}.

  Definition memory := location -> val.

  Variable reads : event -> list location.
  Variable writes : event -> list location.
  (* what the event writes to a location, given the values that it has read *)
  Variable effect : event -> list val -> location -> val.

  Definition seen (e : event) (s : memory) : list val := map s (reads e).

  Definition perform (s : memory) (e : event) : memory :=
    fun l => if in_dec location_dec l (writes e) then effect e (seen e s) l else s l.

  Definition execute (s : memory) (es : list event) : memory := fold_left perform es s.

  (** What event [e] reads in the execution of [es]; None if it does not occur. *)
  Fixpoint observed (e : event) (s : memory) (es : list event) : option (list val) :=
    match es with
    | [] => None
    | f :: rest => if event_dec f e then Some (seen e s) else observed e (perform s f) rest
    end.

  Definition touches_writes (e f : event) : Prop :=
    exists l, In l (writes e) /\ (In l (reads f) \/ In l (writes f)).
  Definition conflict (e f : event) : Prop := touches_writes e f \/ touches_writes f e.

  Lemma conflict_sym e f : conflict e f -> conflict f e.
  Proof. unfold conflict; tauto. Qed.

  (** Memories are compared location by location. *)
  Definition same (s t : memory) : Prop := forall l, s l = t l.

  Lemma seen_same e s t : same s t -> seen e s = seen e t.
  Proof. intros H. apply map_ext. exact H. Qed.

  Lemma perform_same e s t : same s t -> same (perform s e) (perform t e).
  Proof.
    intros H l. unfold perform. rewrite (seen_same e s t H).
    destruct (in_dec location_dec l (writes e)); auto.
  Qed.

  Lemma execute_same es : forall s t, same s t -> same (execute s es) (execute t es).
  Proof.
    induction es as [|e es IH]; intros s t H; [assumption|]. apply IH, perform_same, H.
  Qed.

  Lemma observed_same e es : forall s t, same s t -> observed e s es = observed e t es.
  Proof.
    induction es as [|f es IH]; intros s t H; [reflexivity|]. cbn.
    destruct (event_dec f e); [f_equal; apply seen_same, H|apply IH, perform_same, H].
  Qed.

  (** An event sees nothing of an event it does not conflict with. *)
  Lemma seen_unaffected e f s : ~ conflict e f -> seen e (perform s f) = seen e s.
  Proof.
    intros H. apply map_ext_in. intros l Hl. unfold perform.
    destruct (in_dec location_dec l (writes f)) as [i|]; [|reflexivity].
    exfalso. apply H. right. exists l. auto.
  Qed.

  Lemma perform_commute e f s :
    ~ conflict e f -> same (perform (perform s e) f) (perform (perform s f) e).
  Proof.
    intros H l. unfold perform at 1 3.
    rewrite seen_unaffected by (intros C; apply H, conflict_sym, C).
    rewrite (seen_unaffected e f) by assumption. unfold perform.
    destruct (in_dec location_dec l (writes e)) as [i|],
             (in_dec location_dec l (writes f)) as [j|]; try reflexivity.
    exfalso. apply H. left. exists l. auto.
  Qed.

  (** ** Swapping neighbours that do not conflict *)

  Inductive swaps : list event -> list event -> Prop :=
  | swaps_refl es : swaps es es
  | swaps_here e f es : ~ conflict e f -> e <> f -> swaps (e :: f :: es) (f :: e :: es)
  | swaps_later e es es' : swaps es es' -> swaps (e :: es) (e :: es')
  | swaps_trans es es' es'' : swaps es es' -> swaps es' es'' -> swaps es es''.

  Lemma swaps_preserve es es' : swaps es es' -> forall s,
    same (execute s es) (execute s es') /\ forall e, observed e s es = observed e s es'.
  Proof.
    induction 1 as [es|e f es Hc Hne|e es es' _ IH|es es' es'' _ IH _ IH']; intros s.
    - split; [intros l|]; reflexivity.
    - split.
      + apply (execute_same es), perform_commute, Hc.
      + intros g. cbn. destruct (event_dec e g) as [->|], (event_dec f g) as [->|]; try easy.
        * f_equal. symmetry. apply seen_unaffected, Hc.
        * f_equal. apply seen_unaffected. intros C; apply Hc, conflict_sym, C.
        * apply observed_same, perform_commute, Hc.
    - split; [apply IH|]. intros g. cbn. destruct (event_dec e g); [reflexivity|apply IH].
    - split.
      + intros l. destruct (IH s) as [-> _]. apply IH'.
      + intros e. destruct (IH s) as [_ ->]. apply IH'.
  Qed.

  Lemma swaps_backwards e before after :
    (forall f, In f before -> f <> e /\ ~ conflict f e) ->
    swaps (e :: before ++ after) (before ++ e :: after).
  Proof.
    induction before as [|f before IH]; intros H; [apply swaps_refl|].
    apply swaps_trans with (f :: e :: before ++ after).
    - destruct (H f (or_introl eq_refl)) as [ne nc]. apply swaps_here; [|auto].
      intros C; apply nc, conflict_sym, C.
    - apply swaps_later, IH. intros g Hg. apply H. right; assumption.
  Qed.

  (** ** Executions *)

  Variable hb : event -> event -> Prop.

  (** No event comes before one that must happen before it. *)
  Inductive respects : list event -> Prop :=
  | respects_nil : respects []
  | respects_cons e es : (forall f, In f es -> ~ hb f e) -> respects es -> respects (e :: es).

  (** An execution of the program with events [program]. *)
  Definition execution (program es : list event) : Prop :=
    Permutation program es /\ respects es.

  (** Every two conflicting events are ordered: no race. *)
  Definition race_free (program : list event) : Prop :=
    forall e f, In e program -> In f program -> e <> f -> conflict e f -> hb e f \/ hb f e.

  Lemma respects_app_remove es e es' : respects (es ++ e :: es') ->
    respects (es ++ es') /\ forall f, In f es -> ~ hb e f.
  Proof.
    induction es as [|g es IH]; cbn; intros H; inversion_clear H as [|? ? Hg Hr].
    - split; [assumption|intros f []].
    - destruct (IH Hr) as [IH1 IH2]. split.
      + constructor; [|assumption]. intros f Hf. apply Hg.
        apply in_app_or in Hf as [?|?]; apply in_or_app; cbn; auto.
      + intros f [->|Hf]; [|auto]. apply Hg, in_or_app. cbn; auto.
  Qed.

  (** Any two executions of a race-free program differ by swaps of neighbours
      that do not conflict. *)
  Lemma executions_swap es : forall es',
    NoDup es -> race_free es -> respects es -> Permutation es es' -> respects es' ->
    swaps es es'.
  Proof.
    induction es as [|e es IH]; intros es' nd Hrf Hr P Hr'.
    - apply Permutation_nil in P as ->. apply swaps_refl.
    - assert (Hin : In e es') by (apply (Permutation_in _ P); left; reflexivity).
      apply in_split in Hin as (a & b & ->).
      inversion_clear nd as [|? ? Hne nd']. inversion_clear Hr as [|? ? He Hres].
      apply Permutation_cons_app_inv in P.
      destruct (respects_app_remove a e b Hr') as [Hab Hea].
      assert (inside : forall f, In f a -> In f es).
      { intros f Hf. apply (Permutation_in _ (Permutation_sym P)), in_or_app. auto. }
      apply swaps_trans with (e :: a ++ b).
      + apply swaps_later, IH; try assumption.
        intros f g Hf Hg. apply Hrf; right; assumption.
      + apply swaps_backwards. intros f Hf.
        assert (f <> e) as ne by (intros ->; apply Hne, inside, Hf).
        split; [assumption|]. intros C.
        destruct (Hrf f e) as [H|H]; cbn; auto.
        * apply (He f); auto.
        * apply (Hea f); auto.
  Qed.

  (** Soundness of the interleaving check: in a race-free program every execution
      ends in the same memory as any other, and each event reads the same. *)
  Theorem confluence program es es' s :
    NoDup program -> race_free program ->
    execution program es -> execution program es' ->
    (forall l, execute s es l = execute s es' l) /\
    (forall e, observed e s es = observed e s es').
  Proof.
    intros nd Hrf [P Hr] [P' Hr'].
    apply swaps_preserve, executions_swap; try assumption.
    - apply (Permutation_NoDup P nd).
    - intros e f He Hf. apply Hrf; apply (Permutation_in _ (Permutation_sym P)); assumption.
    - apply Permutation_trans with program; [apply Permutation_sym, P|exact P'].
  Qed.

  (** ** Executions exist when happens-before has no cycle *)

  (** If [hb] is a strict partial order, and decidable, the program has an
      execution: its waits do not deadlock. *)
  Section Existence.
    Variable hb_dec : forall e f, {hb e f} + {~ hb e f}.
    Hypothesis irreflexive : forall e, ~ hb e e.
    Hypothesis transitive : forall e f g, hb e f -> hb f g -> hb e g.

    Lemma minimal_event e es :
      exists m, In m (e :: es) /\ forall f, In f (e :: es) -> ~ hb f m.
    Proof.
      revert e. induction es as [|g es IH]; intros e.
      - exists e. split; [left; reflexivity|]. intros f [->|[]]. apply irreflexive.
      - destruct (IH g) as (m & Hm & Hmin). destruct (hb_dec e m) as [H|H].
        + exists e. split; [left; reflexivity|]. intros f [->|Hf]; [apply irreflexive|].
          intros C. apply (Hmin f Hf). eauto.
        + exists m. split; [right; assumption|]. intros f [->|Hf]; auto.
    Qed.

    Lemma execution_exists_length : forall n program,
      length program = n -> exists es, execution program es.
    Proof.
      induction n as [|n IH]; intros program Hn.
      - destruct program; [|discriminate]. exists []. split; constructor.
      - destruct program as [|e es]; [discriminate|].
        destruct (minimal_event e es) as (m & Hm & Hmin).
        apply in_split in Hm as (a & b & E).
        destruct (IH (a ++ b)) as (rest & P & Hr).
        { apply (f_equal (@length event)) in E. rewrite app_length in *. cbn in *. lia. }
        exists (m :: rest). rewrite E in *. split.
        + apply Permutation_sym, Permutation_cons_app, Permutation_sym, P.
        + constructor; [|assumption]. intros f Hf. apply Hmin.
          apply (Permutation_in _ (Permutation_sym P)) in Hf.
          apply in_app_or in Hf as [?|?]; apply in_or_app; cbn; auto.
    Qed.

    Theorem execution_exists program : exists es, execution program es.
    Proof. eapply execution_exists_length. reflexivity. Qed.
  End Existence.
End Confluence.

Print Assumptions confluence.
Print Assumptions execution_exists.
